"""PAR-NCCL-COLLECTIVE: do collectives give what they say, to whom they say, for the bytes they say?

Question   Does every collective, in every form, give the defined result to exactly the ranks that should have it?
Baseline   the definition applied to all ranks' inputs in one process (parproof.oracles.collectives).
Candidate  --subject: by default the reference on send and receive, and torch.distributed's own.
Claims     C1  every participant holds exactly the oracle's value: ops, reductions, dtypes, layouts, groups.
           C2  inputs, buffers of non-roots and non-participants, and memory around a view stay as they are.
           C3  asynchronous forms give the same, and are complete after `wait` and not before.
           C4  functional and coalesced forms give the same, keep their input, and have the exact gradient.
           C5  messages come from whom, and as what, they were sent; in groups too.
           C6  object collectives deliver whole objects, in group order.
           C7  calls and payload bytes per rank equal the prediction, and nothing else occurred.
Not shown  speed and wire traffic of NCCL: PAR-CPU is gloo on shared cores.
"""

import uuid

import pytest

from parproof import checks, oracles, programs
from parproof.workloads import collective_cases as table
from parproof.workloads import collective_forms as forms

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


def provides(subject, capability):
    """Does the subject say it can?"""
    return subject.load().reason_against(capability) is None


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


@pytest.mark.claim("C3")
@pytest.mark.parametrize("op", table.OPS)
def test_c3_an_asynchronous_form_is_complete_after_wait_and_not_before(op, ranks, subject, evidence):
    """The last rank joins when the others have looked at their handles; `wait` then gives the oracle's value."""
    cases = supported(subject, table.waiting_cases(op, 3), evidence)
    evidence.on("collective_async", op=op, world_size=3)
    run = ranks(3).run(programs.collective_forms.held_back, subject, cases, uuid.uuid4().hex)
    checks.collective_forms.assert_not_early(run, cases)
    checks.collectives.assert_outputs(run, cases)


@pytest.mark.claim("C3")
def test_c3_many_in_flight_end_right_in_any_order_of_waiting(ranks, subject, evidence):
    """All operations are started before one is waited for, and ranks wait in opposite orders."""
    every = [case for op in table.OPS for case in table.waiting_cases(op, 3)[::3]]
    cases = supported(subject, every, evidence)
    evidence.on("collective_async", op="all", world_size=3)
    run = ranks(3).run(programs.collective_forms.all_in_flight, subject, cases)
    checks.collectives.assert_outputs(run, cases)


every_form_group = pytest.mark.parametrize("group", forms.FORM_GROUPS)


@pytest.mark.claim("C4")
@every_form_group
@pytest.mark.parametrize("op", forms.FORMS)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "column_view"])
def test_c4_functional_forms_give_the_value_and_keep_the_input(op, layout, group, ranks, subject, evidence):
    """The same definitions as the buffered forms, with new tensors out."""
    world, members = forms.FORM_GROUPS[group]
    kept = [form for form in forms.FORMS[op] if provides(subject, form.capability)]
    cases = [(form, dtype, layout) for form in kept for dtype in forms.VALUE_DTYPES if form.takes(dtype)]
    evidence.on("collective_functional", op=op, layout=layout, group=group)
    run = ranks(world).run(programs.collective_forms.functional, subject, cases, members, gradient=False)
    checks.collective_forms.assert_functional(run, cases, members, gradient=False)


@pytest.mark.claim("C4")
@every_form_group
@pytest.mark.parametrize("op", forms.FORMS)
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_c4_gradients_are_those_of_the_sum_of_all_losses(op, layout, group, ranks, subject, evidence):
    """Exact, because incoming gradients are integers; they and the inputs come strided."""
    world, members = forms.FORM_GROUPS[group]
    kept = [form for form in forms.FORMS[op] if provides(subject, f"{form.capability}.gradient")]
    cases = [(form, dtype, layout) for form in kept for dtype in ("float64", "bfloat16")]
    evidence.on("collective_gradients", op=op, layout=layout, group=group)
    run = ranks(world).run(programs.collective_forms.functional, subject, cases, members, gradient=True)
    checks.collective_forms.assert_functional(run, cases, members, gradient=True)


@pytest.mark.claim("C5")
@every_form_group
@pytest.mark.parametrize("kind", forms.MESSAGE_KINDS)
@pytest.mark.parametrize("layout", forms.MESSAGE_LAYOUTS)
def test_c5_messages_come_from_whom_and_as_what_they_were_sent(kind, layout, group, ranks, subject, evidence):
    """send, recv, isend, irecv, batched, by tag and from any source."""
    subject.require(f"point_to_point.{kind}.{layout}")
    world, members = forms.FORM_GROUPS[group]
    shape, dtypes = table.SHAPES.get(layout, table.SHAPE), ("float64", "bfloat16", "int16", "bool")
    evidence.on("messages", kind=kind, layout=layout, group=group)
    arguments = (subject, kind, dtypes, shape, layout, members)
    run = ranks(world).run(programs.collective_messages.messages, *arguments)
    checks.collective_forms.assert_messages(run, kind, dtypes, shape, members)


@pytest.mark.claim("C6")
@every_form_group
@pytest.mark.parametrize("op", forms.OBJECT_OPS)
def test_c6_objects_arrive_whole_and_in_order(op, group, ranks, subject, evidence):
    """Sizes differ by orders of magnitude from rank to rank; the root is the group's second rank."""
    world, members = forms.FORM_GROUPS[group]
    evidence.on("objects", op=op, group=group)
    run = ranks(world).run(programs.collective_messages.objects, subject, op, members)
    for me, rank in enumerate(members):
        expected = oracles.collective_messages.expected_object(op, members, me)
        assert run.results[rank] == expected, f"{run.where(rank)}: {op} gave {str(run.results[rank])[:80]}"


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
