"""Every way in which a ledger may differ from its prediction fails, with a text that names it."""

import dataclasses
from typing import ClassVar

import pytest

from parproof import checks, programs
from parproof.checks import assert_ledger, assert_ledger_complete
from parproof.cost.traffic import Traffic
from parproof.errors import UsageError
from parproof.ledger.rows import Row

pytestmark = pytest.mark.selfcheck

FORWARD = Row(
    seq=0,
    op="all_reduce",
    form="single",
    group="0",
    members=(0, 1),
    dtype="float32",
    shapes=((4,),),
    in_bytes=16,
    out_bytes=16,
    reduce_op="sum",
    phase="step/forward",
    where="model.py:7",
)
BACKWARD = dataclasses.replace(FORWARD, seq=1, phase="step/backward", where="model.py:9")
CONTROL = dataclasses.replace(FORWARD, seq=2, op="barrier", in_bytes=0, out_bytes=0, control=True)
ROWS = [FORWARD, BACKWARD, CONTROL]
LINES = [
    Traffic("all_reduce", 1, 16, 16, 2, "step/forward"),
    Traffic("all_reduce", 1, 16, 16, phase="step/backward", members=(0, 1), dtype="float32"),
]


def changed(index, **changes):
    """The rows with one of them changed."""
    return [dataclasses.replace(row, **changes) if i == index else row for i, row in enumerate(ROWS)]


def test_an_equal_ledger_passes():
    """Control traffic is left out; a phase holds the phases inside it; an empty prediction is one too."""
    assert_ledger(ROWS, LINES, where="rank 0 of 2")
    assert_ledger(ROWS, [Traffic("all_reduce", 2, 32, 32, phase="step")], where="rank 0 of 2")
    assert_ledger([CONTROL], [], where="rank 0 of 2")


def test_lines_of_one_kind_are_added_up():
    """A prediction is put together layer by layer."""
    assert_ledger(ROWS, [Traffic("all_reduce", 1, 16, 16)] * 2, where="rank 0 of 2")


def test_the_most_specific_line_takes_a_row():
    """Whatever the order of the lines."""
    rest = Traffic("all_reduce", 1, 16, 16)
    assert_ledger(ROWS, [rest, LINES[0]], where="rank 0 of 2")
    assert_ledger(ROWS, [LINES[0], rest], where="rank 0 of 2")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [*ROWS, FORWARD],
            r"observed 2 calls, 32 bytes in.* expected 1 calls.*last: all_reduce\(.*model.py:7",
        ),
        (ROWS[1:], "over 2 ranks in step/forward: observed 0 calls, 0 bytes in"),
        (changed(0, in_bytes=32), "observed 1 calls, 32 bytes in, 16 bytes out; expected 1 calls, 16 bytes"),
        (changed(0, out_bytes=8), "16 bytes in, 8 bytes out"),
        (
            changed(1, members=(2, 3)),
            r"over ranks \[0, 1\].*observed 0.*nobody predicted.*over ranks \[2, 3\]",
        ),
        (changed(1, members=(1, 0)), "observed 0 calls"),
        (changed(0, members=(0, 1, 2)), "over 2 ranks in step/forward: observed 0 calls"),
        (changed(0, phase="step/backward"), "step/forward: observed 0.*"),
        (changed(0, phase="step/forwards"), "nobody predicted: all_reduce; first: .* in step/forwards"),
        (changed(1, dtype="float64"), "of float32.*observed 0 calls"),
        (changed(0, op="all_gather"), "nobody predicted: all_gather"),
        ([*ROWS, dataclasses.replace(FORWARD, op="send", peer=1)], r"nobody predicted: send; .*to 1"),
        (changed(0, raised="RuntimeError"), "model.py:7 .* raised RuntimeError"),
    ],
    ids=[
        "extra_call",
        "missing_call",
        "wrong_bytes_in",
        "wrong_bytes_out",
        "wrong_group",
        "wrong_group_order",
        "wrong_group_size",
        "wrong_phase",
        "phase_with_the_same_beginning",
        "wrong_dtype",
        "other_operation",
        "operation_on_top",
        "call_that_raised",
    ],
)
def test_any_difference_fails_and_is_named(rows, message):
    """The text begins with the rank."""
    with pytest.raises(
        AssertionError, match=f"^rank 0 of 2: ledger differs from the prediction: .*{message}"
    ):
        assert_ledger(rows, LINES, where="rank 0 of 2")


def test_control_traffic_counts_when_asked_for():
    """A prediction that speaks of barriers is compared with them."""
    with pytest.raises(AssertionError, match="nobody predicted: barrier"):
        assert_ledger(ROWS, LINES, where="rank 0 of 2", ignore_control=False)
    assert_ledger(ROWS, [*LINES, Traffic("barrier", 1, 0, 0)], where="rank 0 of 2", ignore_control=False)


def test_calls_past_the_dispatcher_make_the_ledger_incomplete(ranks):
    """A backend object called directly, on rank 1 of a subgroup: the check names rank, group and numbers."""
    seen = ranks(3).run(programs.kinds.sneaky.honest)
    assert_ledger_complete(seen)
    run = ranks(3).run(programs.kinds.sneaky.past_the_dispatcher)
    assert run.observation["ledger_complete"] is False
    with pytest.raises(AssertionError, match="rank 1 of 3: group 1 counts 3 calls, the ledger explains 1"):
        assert_ledger_complete(run)


def test_without_a_ledger_nothing_is_complete(ranks):
    """Not measured is not the same as nothing sent."""
    run = ranks(2, ledger=False).run(programs.kinds.sneaky.honest)
    assert run.ledger_complete is None
    with pytest.raises(AssertionError, match="no count of calls"):
        assert_ledger_complete(run)


class SaysHowItReduces:
    """A subject that forgot to say how it carries anything else."""

    algorithms: ClassVar = {"all_reduce": "ring"}

    def require(self, capability):
        """It lacks nothing."""

    def make(self, mechanism):
        """The implementation."""
        return self


def test_an_operation_without_a_stated_algorithm_is_told_by_name():
    """Before a prediction is made of it: what to add, or what to say that it lacks."""
    told = checks.collectives.stated(SaysHowItReduces(), "collectives", ["collectives.x"], ["all_reduce"])
    assert told == {"all_reduce": "ring"}
    with pytest.raises(UsageError, match="no entry for barrier") as caught:
        checks.collectives.stated(SaysHowItReduces(), "collectives", ["collectives.barrier"], ["barrier"])
    assert "«collectives.barrier.*.traffic»" in str(caught.value)


def test_of_calls_that_nobody_predicted_the_first_is_named():
    """The first that was made, whatever it is called."""
    surplus = [dataclasses.replace(FORWARD, seq=k, op=op) for k, op in enumerate(("send", "recv", "send"))]
    with pytest.raises(AssertionError, match=r"nobody predicted: recv, send; first: send.* and 2 more"):
        assert_ledger(surplus, [], where="rank 0 of 2")
    with pytest.raises(AssertionError, match="nobody predicted: recv; first: recv"):
        assert_ledger(surplus, [Traffic("send", 2, 32, 32)], where="rank 0 of 2")
