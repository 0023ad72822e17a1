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
           C8  times are read where values are right; each payload has median, P95, bandwidths, and a model or none.
           C9  every mismatch, absence, death or timeout is diagnosed by name on every rank; the next run works.
Not shown  speed and wire traffic of NCCL: PAR-CPU is gloo on shared cores.
"""

import pytest

from parproof import checks, programs
from parproof.checks import collective_runs as runs
from parproof.workloads import collective_cases as table
from parproof.workloads import collective_coalesced as coalescing
from parproof.workloads import collective_forms as forms
from parproof.workloads import collective_waiting as waits
from parproof.workloads.collective_accidents import ACCIDENTS, DEADLINE_S, LEFT_TO_TORCH, PATIENCE_S

pytestmark = [pytest.mark.experiment("PAR-NCCL-COLLECTIVE"), pytest.mark.lanes("cpu", "cuda2", control=4)]
by_place = pytest.mark.parametrize("place", table.places(), ids=table.name)


@pytest.fixture
def observed(ranks, subject):
    """(run, its cases): one run of an operation's cases, judged by several claims."""

    def made(op, layout, kind, p, aspect=""):
        cases = checks.collectives.provided(subject, table.value_cases(op, layout, kind, p), aspect)
        return ranks(p).run_once(programs.collectives.over_the_world, subject, cases), cases

    return made


@pytest.mark.claim("C1")
@by_place
def test_c1_every_participant_holds_the_oracles_value(place, observed, evidence):
    """Equality is the tolerance: every partial result is representable in every dtype."""
    op, layout, kind, p = place
    evidence.on("collective_values", op=op, layout=layout, kind=kind, world_size=p)
    evidence.measured(num_elements=checks.collectives.assert_outputs(*observed(*place)))


@pytest.mark.claim("C1", "C7")
@pytest.mark.parametrize("group", table.GROUPS)
def test_c1_in_every_kind_of_group(group, ranks, subject, evidence):
    """Roots and peers are places in the group: a global rank in their stead goes to the wrong member."""
    world, members = table.GROUPS[group]
    cases = checks.collectives.provided(subject, table.group_cases(len(members[0])))
    evidence.on("collective_groups", group=group, world_size=world)
    run = ranks(world).run(programs.collectives.over_groups, subject, cases, members)
    checks.collectives.assert_outputs(run, cases, members)
    algorithms = checks.collectives.algorithms(subject, cases)
    lines = checks.collectives.assert_traffic(run, cases, algorithms, members)
    evidence.predict(lines, rank=world - 1)


@pytest.mark.claim("C1")
@pytest.mark.parametrize("name", table.LARGE_HALF)
def test_c1_large_half_precision_sums_are_rounded_once_and_overflow_to_infinity(
    name, ranks, subject, evidence
):
    """Odd numbers of elements, 24 million of them too, which every algorithm cuts into parts."""
    evidence.on("large_half", name=name, count=table.LARGE_HALF[name][0], world_size=2)
    checks.collectives.assert_large_half(ranks(2).run(programs.collectives.large_half, subject, name), name)


@pytest.mark.claim("C2")
@by_place
def test_c2_what_is_not_the_result_stays_as_it_is(place, observed, evidence):
    """Inputs, what non-roots and non-receivers hold, and the elements between and beside those of a view."""
    op, layout, kind, p = place
    evidence.on("collective_values", op=op, layout=layout, kind=kind, world_size=p)
    evidence.measured(num_elements=checks.collectives.assert_kept(*observed(*place)))


@pytest.mark.claim("C2")
@pytest.mark.parametrize("ops", ["reduce", "all_but_reduce"])
def test_c2_a_rank_outside_the_group_is_left_alone(ops, ranks, subject, evidence):
    """It calls like the others, with the group it is not in; nothing happens to it, and nothing to the group."""
    chosen = [op for op in table.OPS if (op == "reduce") == (ops == "reduce")]
    cases = checks.collectives.provided(subject, [c for op in chosen for c in table.cases(op, p=2, thin=6)])
    evidence.on("collective_groups", ops=ops, group="without_rank_0", world_size=3)
    run = ranks(3).run(programs.collectives.over_groups, subject, cases, [(1, 2)])
    checks.collectives.assert_kept(run, cases, [(1, 2)])
    checks.collectives.assert_outputs(run, cases, [(1, 2)])


@pytest.mark.claim("C3")
@pytest.mark.parametrize(("op", "group"), waits.waiting_places())
def test_c3_an_asynchronous_form_is_right_after_wait_and_not_complete_before(
    op, group, ranks, subject, evidence
):
    """The last rank joins when the others have looked at their handles; `wait` then gives the oracle's value."""
    evidence.on("collective_async", op=op, group=group)
    run, cases, groups = runs.waiting(ranks, subject, op, group)
    checks.collective_forms.assert_not_early(run, cases, groups)
    checks.collectives.assert_outputs(run, cases, groups)


@pytest.mark.claim("C3")
@pytest.mark.parametrize("of", [*table.OPS, *coalescing.FORMS])
def test_c3_a_handle_calls_itself_complete_after_wait(of, ranks, subject, evidence):
    """In every kind of group, on the runs that judge the values; those of messages are asked where these are judged."""
    evidence.on("collective_async", op=of)
    checks.collective_forms.assert_complete(runs.handles(ranks, subject, of))


@pytest.mark.claim("C3")
@pytest.mark.parametrize("group", forms.FORM_GROUPS)
def test_c3_no_rank_leaves_a_barrier_before_the_last_has_come(group, ranks, subject, evidence):
    """Nor does it wait for ranks outside its group: those come back at once, and groups take turns."""
    evidence.on("barrier", group=group)
    checks.collective_forms.assert_barrier(*runs.barrier(ranks, subject, group))


@pytest.mark.claim("C3")
def test_c3_many_in_flight_end_right_in_any_order_of_waiting(ranks, subject, evidence):
    """All operations are started before one is waited for, and ranks wait in opposite orders."""
    evidence.on("collective_async", op="all", world_size=3)
    checks.collectives.assert_outputs(*runs.in_flight(ranks, subject))


@pytest.mark.claim("C4")
@pytest.mark.parametrize("place", forms.value_places(), ids="-".join)
def test_c4_functional_forms_give_the_value_and_keep_the_input(place, ranks, subject, evidence):
    """The same definitions as the buffered forms, with new tensors out."""
    evidence.on("collective_functional", **forms.named(place))
    made = runs.functional(ranks, subject, *place, gradient=False)
    evidence.measured(num_elements=checks.collective_forms.assert_functional(*made))


@pytest.mark.claim("C4")
@pytest.mark.parametrize("place", forms.gradient_places(), ids="-".join)
def test_c4_gradients_are_those_of_the_sum_of_all_losses(place, ranks, subject, evidence):
    """Exact, because incoming gradients are integers; they and the inputs come strided."""
    evidence.on("collective_gradients", **forms.named(place))
    made = runs.functional(ranks, subject, *place, gradient=True)
    evidence.measured(num_elements=checks.collective_forms.assert_functional(*made))


@pytest.mark.claim("C4")
@pytest.mark.parametrize("place", coalescing.places(), ids="-".join)
def test_c4_coalesced_calls_give_what_each_call_gives(place, ranks, subject, evidence):
    """Lists of tensors in one call, and calls that travel as one; blocking and asynchronous, views among them."""
    evidence.on("collective_coalesced", form=place[0], group=place[1])
    made = runs.coalesced(ranks, subject, *place)
    evidence.measured(num_elements=checks.collective_forms.assert_coalesced(*made))


@pytest.mark.claim("C5")
@pytest.mark.parametrize("place", forms.message_places(), ids="-".join)
def test_c5_messages_come_from_whom_and_as_what_they_were_sent(place, ranks, subject, evidence):
    """send, recv, isend, irecv, batched, by tag and from any source; empty ones too."""
    evidence.on("messages", **forms.named(place))
    checks.collective_forms.assert_messages(*runs.messages(ranks, subject, *place))


@pytest.mark.claim("C6")
@pytest.mark.parametrize("group", forms.FORM_GROUPS)
def test_c6_objects_arrive_whole_and_in_order(group, ranks, subject, evidence):
    """Sizes differ by orders of magnitude from rank to rank; the root is the group's second rank."""
    evidence.on("objects", group=group)
    checks.collective_forms.assert_objects(*runs.objects(ranks, subject, group))


@pytest.mark.claim("C7")
@pytest.mark.parametrize("place", table.places(("contiguous", "odd_large"), bools=False), ids=table.name)
def test_c7_calls_and_bytes_are_the_predicted_ones_and_nothing_else(place, observed, subject, evidence):
    """The algorithm is the subject's word, the bytes are the cost model's, the calls are what the ledger saw."""
    op, layout, _, p = place
    run, cases = observed(*place, ".traffic")
    evidence.on("collective_traffic", op=op, layout=layout, world_size=p)
    algorithms = checks.collectives.algorithms(subject, cases)
    evidence.predict(checks.collectives.assert_traffic(run, cases, algorithms), rank=p - 1)


@pytest.mark.claim("C7")
@pytest.mark.parametrize("form", runs.form_ledgers(), ids="-".join)
def test_c7_every_other_form_sends_what_is_predicted_and_nothing_else(form, ranks, subject, evidence):
    """Asynchronous, functional, gradients, messages, objects, barrier: on the runs that judge their values."""
    evidence.on("collective_form_traffic", form=form)
    run, lines = runs.assert_form_ledger(ranks, subject, *form)
    evidence.predict(lines, rank=run.world_size - 1)


@pytest.mark.claim("C8")
@pytest.mark.parametrize(
    "op", ["all_reduce", "all_gather_single", "reduce_scatter_single", "all_to_all_single"]
)
def test_c8_times_of_a_payload_sweep_are_read_where_the_values_are_right(
    op, ranks, subject, evidence, timings
):
    """From latency-bound to bandwidth-bound; no threshold on time: every rank has its samples, or it fails."""
    counts, warmup, repeats = (64, 2**12, 2**15, 2**18), 2, 6
    evidence.on("collective_times", op=op, counts=counts, dtype="float32", warmup=warmup, repeats=repeats)
    run = ranks(2, ledger=False).run(programs.collective_times.sweep, subject, op, counts, warmup, repeats)
    checks.collective_times.assert_values(run, op, counts)
    measured = checks.collective_times.points(run, op, counts)
    for point in measured:
        assert {len(of_rank) for of_rank in point.samples_s} == {repeats}
        timings.record(f"{op} {point.size} bytes", point.samples_s, warmup=warmup)
    timings.publish()
    evidence.measured(**checks.collective_times.described(op, 2, measured))


@pytest.mark.claim("C9")
@pytest.mark.parametrize("name", ACCIDENTS)
def test_c9_an_accident_is_diagnosed_in_time_and_the_next_run_works(name, ranks, subject, evidence):
    """A mismatch, an absence, a death or a timeout: wrong numbers do not pass, and a hang ends at the deadline."""
    accident = ACCIDENTS[name]
    evidence.on("accidents", name=name, world_size=accident.world_size)
    held = ranks(accident.world_size, deadline_s=DEADLINE_S, patience_s=PATIENCE_S)
    found = checks.collective_failures.failure_of(held, programs.collective_failures.accident, subject, name)
    checks.collective_failures.assert_diagnosed(*found, accident)
    assert ranks(3).run(programs.collective_failures.works, subject).results == [[30.0, 33.0, 36.0, 39.0]] * 3


@pytest.mark.claim("C9")
@pytest.mark.parametrize("kind", LEFT_TO_TORCH)
def test_c9_torch_itself_ends_a_wrong_rendezvous_and_a_late_operation(kind, ranks, evidence):
    """A group that cannot come together, and the timeout of one call: every rank says why, and the next run works."""
    evidence.on("accidents", name=kind, world_size=3)
    held = ranks(3, deadline_s=DEADLINE_S)
    found = checks.collective_failures.failure_of(held, programs.collective_failures.torch_times_out, kind)
    checks.collective_failures.assert_each_rank_says(*found, LEFT_TO_TORCH[kind])
    assert ranks(3).run(programs.collective_failures.sums).results == [[30.0, 33.0, 36.0, 39.0]] * 3


@pytest.mark.claim("C1")
def test_c1_detail_mode_and_subgroups_do_not_disturb_each_other(ranks, subject, evidence):
    """An operation in a subgroup, a barrier of all, an operation of all; with torch's own checks switched on."""
    evidence.on("barrier_after_subgroup", world_size=3)
    run = ranks(3, debug_detail=True).run(programs.collective_failures.barrier_after_subgroup, subject)
    assert run.results == [[30.0, 32.0, 34.0, 36.0]] * 3


@pytest.mark.claim("C1")
def test_c1_new_subgroups_have_the_members_they_say(ranks):
    """Cut from the world, and from a group without rank 0."""
    run = ranks(4).run(programs.collective_failures.subgroups, 2)
    assert run.results == [[[0, 1]], [[0, 1]], [[2, 3], [2]], [[2, 3], [3]]]
