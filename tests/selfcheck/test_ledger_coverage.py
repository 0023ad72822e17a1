"""The ledger sees every kind of communication torch can do: once, whole, and nothing else."""

import types

import pytest

from parproof.checks import assert_ledger_complete
from parproof.programs import kinds

pytestmark = [
    pytest.mark.selfcheck,
    # Every name is used, the deprecated ones too.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    # torch.distributed.optim compiles functions when it is imported.
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
]


def assert_seen(run, family):
    """Each kind's rows are what was asked for, on each rank; the groups' own counts agree."""
    world = run.world_size
    table = kinds.asked.kinds_of(family, world)
    for kind in table:
        for rank in range(world):
            difference = kind.differs(run.ledgers[rank], rank, world)
            assert not difference, f"{run.where(rank)}: {kind.name}: {difference}"
    phases = {row.phase for rows in run.ledgers for row in rows}
    assert phases <= {kind.name for kind in table}
    assert_ledger_complete(run)


@pytest.mark.parametrize("family", ["classic", "functional", "point_to_point"])
@pytest.mark.parametrize("world", [2, 3, 4])
def test_calls_of_one_operation(world, family, ranks):
    """Classic, functional, autograd and point-to-point calls, in every form gloo takes."""
    assert_seen(ranks(world).run(kinds.asked.do_all, family), family)


@pytest.mark.parametrize("family", ["objects", "surroundings", "data_parallel", "model_parallel"])
@pytest.mark.parametrize("world", [2, 4])
def test_calls_made_by_torch_itself(world, family, ranks):
    """Object collectives, threads, modes, compiled code, reducers, hooks, sharded state, layouts, schedules."""
    assert_seen(ranks(world).run(kinds.asked.do_all, family), family)


@pytest.mark.parametrize("kind", ["all_to_all_single", "broadcast"])
def test_a_kind_that_is_not_seen_fails(kind, ranks):
    """The check itself: a program that leaves a kind out, and rows of another kind in its place."""
    run = ranks(2).run(kinds.asked.do_all, "classic", "all_reduce")
    table = {one.name: one for one in kinds.asked.kinds_of("classic", 2)}
    assert not table["all_reduce"].differs(run.ledgers[0], 0, 2)
    assert table[kind].differs(run.ledgers[0], 0, 2).startswith("observed [], asked for")


def test_a_refused_call_is_marked_and_the_next_one_counts(ranks):
    """torch refuses a buffer before anything is sent."""
    run = ranks(2).run(kinds.surroundings.raises_and_goes_on)
    for rows in run.ledgers:
        assert [(row.op, row.raised) for row in rows] == [("all_gather", "RuntimeError"), ("all_reduce", "")]
    assert_ledger_complete(run)


def test_many_threads_leave_nothing_behind(ranks):
    """Each is followed by name; a thread of an earlier run writes into the run that is on."""
    run = ranks(2).run(kinds.surroundings.many_threads, 50)
    assert [len(rows) for rows in run.ledgers] == [50, 50]
    assert {row.thread for rows in run.ledgers for row in rows} == {"sender"}
    for _ in range(2):
        run = ranks(2).run(kinds.surroundings.thread_that_stays)
        assert [len(rows) for rows in run.ledgers] == [1, 1]
        assert_ledger_complete(run)


def test_who_made_a_call_is_told(ranks):
    """The torch function and the caller's line: what a person looks for first."""
    run = ranks(2).run(kinds.asked.do_all, "data_parallel", "ddp")
    made = [row.via for row in run.ledgers[0]]
    assert made == ["DistributedDataParallel.__init__"] * 3 + ["Tensor.backward"]
    assert all(row.where.startswith("data_parallel.py:") for row in run.ledgers[0])


def test_an_unknown_operator_is_not_passed_over(ranks):
    """A later torch may bring one: it becomes a row of its own name, which no prediction contains."""
    held = ranks(2, fresh=True)
    held.run(kinds.sneaky.brings_an_operator)
    run = held.run(kinds.sneaky.calls_the_operator)
    assert [(row.op, row.form, row.in_bytes) for row in run.ledgers[1]] == [("c10d::whisper", "unknown", 16)]
    assert run.results == [False, False], "operators that do not communicate run as torch made them"
    ranks(2, fresh=True)


def test_without_a_ledger_nothing_stands_between_a_program_and_torch(ranks):
    """Times are taken so; the next run that asks for a ledger has one again."""
    run = ranks(2, ledger=False).run(kinds.sneaky.kernels_in_front)
    assert run.results == [[], []]
    run = ranks(2).run(kinds.sneaky.kernels_in_front)
    assert [len(names) for names in run.results] == [3, 3]


@pytest.mark.parametrize(
    ("gone", "come", "more"),
    [
        ([], [], False),
        ([], ["plain"], False),
        ([], ["torch.brings", "plain"], True),
        (["last"], ["torch.brings"], True),
        (["first"], ["torch.brings"], True),
    ],
)
def test_operators_are_listed_anew_when_torch_has_loaded_more(gone, come, more, monkeypatch):
    """To list them takes longer than a small test, so only a new module of torch is a reason; a module that went hides none."""
    from parproof.ledger import interception

    loaded = dict.fromkeys(["first", "torch", "last"])
    monkeypatch.setattr(interception, "sys", types.SimpleNamespace(modules=loaded))
    seen = []
    monkeypatch.setattr(interception, "communication_operators", lambda: seen.append(1) or [])
    front = interception.Interception(lambda make, call, named: make())
    front._libraries["c10d"] = None
    front.insert()
    seen.clear()
    for name in gone:
        del loaded[name]
    loaded.update(dict.fromkeys(come))
    front.insert()
    assert bool(seen) is more
    seen.clear()
    front.insert()
    assert not seen, "once looked through, they are known"
