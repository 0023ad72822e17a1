"""PAR-NCCL-COLLECTIVE: do collectives give what they say, to whom they say, for the bytes they say?

Question   Does every collective, in every form, give the defined result to exactly the ranks that should have it?
Baseline   the definition applied to all ranks' inputs in one process (parproof.oracles.collectives).
Candidate  --subject: by default the reference on send and receive, and torch.distributed's own.
Claims     C1  every participant holds exactly the oracle's value: ops, reductions, dtypes, layouts, groups.
           C2  inputs, buffers of non-roots and non-participants, and memory around a view stay as they are.
           C7  calls and payload bytes per rank equal the prediction, and nothing else occurred.
Not shown  speed and wire traffic of NCCL: PAR-CPU is gloo on shared cores.
"""

import pytest

from parproof import checks, programs
from parproof.workloads import collective_cases as table

pytestmark = [pytest.mark.experiment("PAR-NCCL-COLLECTIVE"), pytest.mark.lanes("cpu", "cuda2")]


def named(**values):
    """A parameter set whose id is its values, in words."""
    return pytest.param(*values.values(), id="-".join(str(v) for v in values.values()))


def supported(subject, cases, evidence):
    """The cases a subject provides; what it lacks is kept beside the evidence, and nothing left is a skip."""
    loaded = subject.load()
    kept = [case for case in cases if loaded.reason_against(case.capability) is None]
    if not kept:
        subject.require(cases[0].capability)
    evidence.measured(num_cases=len(kept), num_cases_lacking=len(cases) - len(kept))
    return kept


@pytest.mark.claim("C1")
@pytest.mark.parametrize(
    ("op", "layout", "kind", "world"),
    [named(op=op, layout=layout, kind=kind, world=f"W{p}") for op, layout, kind, p in table.value_cases()],
)
def test_c1_every_participant_holds_the_oracles_value(op, layout, kind, world, ranks, subject, evidence):
    """Equality is the tolerance: every partial result is representable in every dtype."""
    p = int(world[1:])
    full = kind == "bool" or (layout == "contiguous" and p == 3)
    cases = supported(subject, table.cases(op, layout, kind=kind, p=p, thin=1 if full else 4), evidence)
    evidence.on("collective_values", op=op, layout=layout, kind=kind, world_size=p)
    run = ranks(p).run(programs.collectives.over_the_world, subject, cases)
    evidence.measured(num_elements=checks.collectives.assert_outputs(run, cases))


every_group = pytest.mark.parametrize("group", table.GROUPS)


@pytest.mark.claim("C1", "C7")
@every_group
def test_c1_in_every_kind_of_group(group, ranks, subject, evidence):
    """Roots and peers are places in the group: a global rank in their stead goes to the wrong member."""
    world, members = table.GROUPS[group]
    cases = supported(subject, table.group_cases(len(members[0])), evidence)
    evidence.on("collective_groups", group=group, world_size=world)
    run = ranks(world).run(programs.collectives.over_groups, subject, cases, members)
    checks.collectives.assert_outputs(run, cases, members)
    algorithms = subject.make("collectives").algorithms
    evidence.predict(checks.collectives.assert_traffic(run, cases, algorithms, members))


@pytest.mark.claim("C2")
@pytest.mark.parametrize("op", table.OPS)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided", "column_view", "zero_dim"])
def test_c2_what_is_not_the_result_stays_as_it_is(op, layout, ranks, subject, evidence):
    """Inputs, what non-roots and non-receivers hold, and the elements between and beside those of a view."""
    cases = supported(subject, table.cases(op, layout, p=3, thin=5), evidence)
    evidence.on("collective_values", op=op, layout=layout, world_size=3)
    run = ranks(3).run(programs.collectives.over_the_world, subject, cases)
    evidence.measured(num_elements=checks.collectives.assert_kept(run, cases))


@pytest.mark.claim("C2")
@pytest.mark.parametrize("op", table.OPS)
def test_c2_a_rank_outside_the_group_is_left_alone(op, ranks, subject, evidence):
    """It calls like the others, with the group it is not in; nothing happens to it, and nothing to the group."""
    cases = supported(subject, table.cases(op, p=2, thin=5), evidence)
    evidence.on("collective_groups", op=op, group="without_rank_0", world_size=3)
    run = ranks(3).run(programs.collectives.over_groups, subject, cases, [(1, 2)])
    checks.collectives.assert_kept(run, cases, [(1, 2)])
    checks.collectives.assert_outputs(run, cases, [(1, 2)])


@pytest.mark.claim("C7")
@pytest.mark.parametrize("op", table.OPS)
@pytest.mark.parametrize("world", ["W2", "W3", "W4"])
def test_c7_calls_and_bytes_are_the_predicted_ones_and_nothing_else(op, world, ranks, subject, evidence):
    """The algorithm is the subject's word, the bytes are the cost model's, the calls are what the ledger saw."""
    p = int(world[1:])
    every = table.cases(op, p=p, thin=3) + table.cases(op, "odd_large", p=p, thin=7)
    cases = supported(subject, every, evidence)
    evidence.on("collective_traffic", op=op, world_size=p)
    run = ranks(p).run(programs.collectives.over_the_world, subject, cases)
    algorithms = subject.make("collectives").algorithms
    evidence.predict(checks.collectives.assert_traffic(run, cases, algorithms))
