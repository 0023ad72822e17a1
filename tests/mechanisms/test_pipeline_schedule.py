"""PAR-PIPELINE-SCHEDULE: a model cut into stages over ranks, a batch cut into micro-batches.

Question   Does a schedule change only when things happen, and what idles and stays in memory meanwhile?
Baseline   one process, all stages in a row, micro-batch by micro-batch.
Candidate  --subject: fill-drain, 1F1B, interleaved, breadth-first, zero-bubble and V-shaped schedules.
Claims     C1   the loss of each micro-batch and all gradients of all stages equal the baseline's, bit for bit;
                unequal micro-batches count by their rows, within a bound.
           C2   so do the weights after several updates, also when several steps make one update.
           C3   so they do for stages with several outputs, skips, integers, shared, frozen and tied weights.
           C4   backward to the inputs and then to the weights gives the same as backward in one pass.
           C5   everything is done once, in the schedule's order; ledger, modules and clock bear it out.
           C6   live activations peak where the model says: 1F1B holds min(m, p − s), not m and not 2(p − s) − 1.
           C7   neighbours exchange full tensors, once each way for a micro-batch, and nobody else anything.
           C8   what cannot run is refused on every rank before anything is sent, and never hangs.
           C9   pipelines side by side, with other data, arrive at the mean over all data.
           C10  ranks work at the same time, and no step beats the modelled makespan.
Not shown  speed, overlap of transfer and compute, memory in bytes of a device; NCCL's order of sends. How short a
           zero-bubble V is with fewer than 2p − 1 micro-batches: C5 only asks that it is not longer than with 2p − 1.
"""

import pytest

from parproof import checks, oracles, programs, workloads
from parproof.cost import pipeline as cost
from parproof.workloads import pipeline_cases as cases

pytestmark = [pytest.mark.experiment("PAR-PIPELINE-SCHEDULE"), pytest.mark.lanes("cpu", control=4)]

DEADLINE_S = 15.0  # a schedule that deadlocks is named by stacks; a good one takes below a second
REFUSAL = {"steps": 1, "program": "refusal", "patience_s": 0.01}
on_worlds = pytest.mark.parametrize(
    ("world", "schedule", "rows"), cases.ON_WORLDS.values(), ids=cases.ON_WORLDS
)


def trained(ranks, subject, world, schedule, m=None, *, program="train", patience_s=None, **options):
    """(run of a training, its case). One run is judged by several claims."""
    case = cases.training(schedule, world, m, **options)
    subject.require(f"pipeline.{case.plan.schedule}.{case.plan.stages_per_rank}.{case.kind}")
    if case.plan.rows:
        subject.require("pipeline.uneven")
    on_ranks = ranks(world, deadline_s=DEADLINE_S, patience_s=patience_s)
    return on_ranks.run_once(getattr(programs.pipeline, program), subject, case), case


@pytest.mark.claim("C1")
@on_worlds
def test_c1_losses_and_gradients_equal_one_process(world, schedule, rows, ranks, subject, evidence):
    """Equality is the tolerance: the same additions in the same order. Rows that are not equal have a bound."""
    run, case = trained(ranks, subject, world, schedule, rows=rows)
    evidence.on("pipeline_chain", schedule=schedule, world=world, micro_batches=len(case.cut), rows=case.cut)
    judge = checks.pipeline.Judge(run, case)
    judge.values()


@pytest.mark.claim("C1")
@pytest.mark.parametrize(("schedule", "m"), cases.COUNTS)
def test_c1_the_mean_is_taken_once_whatever_the_number_of_micro_batches(m, schedule, ranks, subject):
    """Early stages too: a stage that scales what is already scaled shows by a factor of m."""
    judge = checks.pipeline.Judge(*trained(ranks, subject, 2, schedule, m, steps=1), exact=m != 6)
    judge.values()


@pytest.mark.claim("C2")
@on_worlds
def test_c2_weights_follow_the_baseline_over_updates(world, schedule, rows, ranks, subject):
    """The second step starts from the first one's weights, with buffers and graphs that were used before."""
    checks.pipeline.Judge(*trained(ranks, subject, world, schedule, rows=rows)).parameters()


@pytest.mark.claim("C2")
@pytest.mark.parametrize("rows", [(), cases.RAGGED], ids=["equal", "rows_3_2_2"])
@pytest.mark.parametrize("schedule", cases.ACCUMULATING)
def test_c2_steps_without_an_update_accumulate(schedule, rows, ranks, subject):
    """The gradient is the sum of the steps' means: what is there already must not be divided again."""
    run, case = trained(ranks, subject, 2, schedule, rows=rows, steps=1, windows=3)
    judge = checks.pipeline.Judge(run, case, exact=False)
    judge.gradients()
    judge.parameters()


@pytest.mark.claim("C3")
@pytest.mark.parametrize(("kind", "schedule", "rows"), cases.KINDS.values(), ids=cases.KINDS)
def test_c3_stages_of_every_kind_equal_the_baseline(kind, schedule, rows, ranks, subject, evidence):
    """Split outputs, one weight used twice, a tensor passed on, integers, a stage that learns nothing."""
    world = cases.num_ranks(schedule)
    evidence.on(f"pipeline_{kind}", schedule=schedule, world=world)
    steps = 2 if kind in ("index", "hooked") else 1  # what stays from one step may spoil the next
    run, case = trained(ranks, subject, world, schedule, rows=rows, kind=kind, steps=steps)
    judge = checks.pipeline.Judge(run, case)
    judge.values()
    judge.parameters()


@pytest.mark.claim("C3")
@pytest.mark.parametrize(("schedule", "rows"), cases.TIED.values(), ids=cases.TIED)
def test_c3_a_weight_tied_between_the_first_and_the_last_stage_has_one_gradient(
    schedule, rows, ranks, subject
):
    """Two owners hold the same sum, bit for bit; on one rank it is one object, and its mean is taken once."""
    subject.require(f"pipeline.tied.{'rank' if schedule in cost.V_SHAPED else 'ranks'}")
    world = cases.num_ranks(schedule)
    run, case = trained(ranks, subject, world, schedule, rows=rows, kind="tied", steps=1)
    judge = checks.pipeline.Judge(run, case, exact=False)
    judge.values()
    placed = checks.pipeline.places(case, run.world_size)
    first, last = (run.results[placed[s]]["parameters"][s]["weight"] for s in (0, len(placed) - 1))
    checks.assert_exact(first, last, where=run.where(placed[0]), what="tied weight after an update")


@pytest.mark.claim("C4")
@pytest.mark.parametrize("kind", ["chain", "chunks", "shared", "skip", "index", "frozen", "function"])
def test_c4_backward_in_two_parts_equals_backward_in_one(kind, ranks, subject):
    """In the middle and at the end of a model; `.grad` adds up over two micro-batches."""
    subject.require("pipeline.split")
    (found,) = ranks(1).run(programs.pipeline.split, subject, kind).results
    for k, seen in found.items():
        stage = workloads.pipeline.net(kind, 3).stages[k]
        inputs, weights = oracles.pipeline.whole_backward(stage, *workloads.pipeline.alone(kind, k))
        twice = [None if g is None else 2 * g for g in weights]
        expected = {"inputs": inputs, "once": weights, "twice": twice}
        checks.pipeline.assert_split(seen, expected, where=f"stage {k} of {kind}")


@pytest.mark.claim("C4")
def test_c4_the_weight_gradients_it_returns_are_those_it_computed(ranks, subject):
    """Not what was in `.grad` before: a caller that uses the return value would train on stale gradients."""
    subject.require("pipeline.split")
    (found,) = ranks(1).run(programs.pipeline.split, subject, "chain").results
    for k, seen in found.items():
        checks.pipeline.assert_split(seen, {"returned": seen["once"]}, where=f"stage {k}: return value")


@pytest.mark.claim("C5")
@on_worlds
def test_c5_the_order_is_the_schedules_and_really_happened(world, schedule, rows, ranks, subject, evidence):
    """What a subject reports is compared with what its ledger, the stages' modules and the clock saw."""
    run, case = trained(ranks, subject, world, schedule, rows=rows)
    evidence.on("pipeline_chain", schedule=schedule, world=world, micro_batches=len(case.cut), rows=case.cut)
    evidence.measured(events=checks.pipeline_order.timed(run))
    checks.pipeline_order.assert_order(run, case)
    found, model = checks.pipeline_order.makespan_slots(run, case)
    evidence.measured(makespan_slots=found, modelled_makespan_slots=model)
    checks.pipeline_order.assert_reports_are_true(run, case)


@pytest.mark.claim("C5", "C6")
def test_c5_c6_fewer_micro_batches_than_fill_a_v(ranks, subject, evidence):
    """Four on three ranks, where five leave no bubble: it waits, within its limit, and no longer than with the fifth."""
    run, case = trained(ranks, subject, 3, "zero_bubble_v", 4, steps=1)
    checks.pipeline_order.assert_order(run, case)
    found, model = checks.pipeline_order.makespan_slots(run, case)
    peaks = checks.pipeline.assert_live(run, case, checks.pipeline_order.observed(run))
    evidence.on("pipeline_chain", schedule="zero_bubble_v", world=3, micro_batches=4)
    evidence.measured(
        makespan_slots=found, makespan_slots_of_five=model, peak_live_activations_per_rank=peaks
    )


@pytest.mark.claim("C6")
@on_worlds
def test_c6_live_activations_peak_where_the_model_says(world, schedule, rows, ranks, subject, evidence):
    """Counted by the tensors that autograd keeps, micro-batch by micro-batch, not by what a subject says."""
    run, case = trained(ranks, subject, world, schedule, rows=rows)
    observed = checks.pipeline_order.observed(run)
    peaks = checks.pipeline.assert_live(run, case, observed)
    evidence.on("pipeline_chain", schedule=schedule, world=world, micro_batches=len(case.cut), rows=case.cut)
    evidence.measured(peak_live_activations_per_rank=peaks)


@pytest.mark.claim("C7")
@pytest.mark.parametrize(("kind", "schedule", "rows"), cases.TRAFFIC.values(), ids=cases.TRAFFIC)
def test_c7_neighbours_exchange_full_tensors_once_each_way(kind, schedule, rows, ranks, subject, evidence):
    """By peer, and message by message; integers go forward only. What is exchanged once to get ready, is declared."""
    run, case = trained(ranks, subject, cases.num_ranks(schedule), schedule, rows=rows, kind=kind)
    evidence.on(f"pipeline_{kind}", schedule=schedule, world=run.world_size, rows=case.cut)
    evidence.predict(checks.pipeline_traffic.assert_traffic(run, case, subject.make("pipeline").setup))
    sizes = checks.pipeline_traffic.assert_message_sizes(run, case, checks.pipeline_order.observed(run))
    evidence.measured(message_bytes_of_rank_0=sizes)


@pytest.mark.claim("C7")
@pytest.mark.parametrize("rows", [(), (2, 4, 3)], ids=["equal", "rows_2_4_3"])
@pytest.mark.parametrize("schedule", ["fill_drain", "one_f_one_b", "interleaved", "zero_bubble_v"])
def test_c7_tensor_ranks_share_what_crosses_a_boundary(schedule, rows, ranks, subject, evidence):
    """Two pipelines on the same data: each sends half of every tensor, and those that receive gather the halves."""
    subject.require("pipeline.tensor_boundary")
    run, case = trained(ranks, subject, 4, schedule, rows=rows, tensor_ranks=2)
    evidence.on("pipeline_chain", schedule=schedule, world=4, tensor_ranks=2, rows=case.cut)
    checks.pipeline.Judge(run, case).values()
    evidence.predict(checks.pipeline_traffic.assert_traffic(run, case, subject.make("pipeline").setup))
    checks.pipeline_traffic.assert_message_sizes(run, case, checks.pipeline_order.observed(run))


@pytest.mark.claim("C8")
@pytest.mark.parametrize(("schedule", "options", "named"), cases.REFUSED.values(), ids=cases.REFUSED)
def test_c8_what_cannot_run_is_refused_on_every_rank(schedule, options, named, ranks, subject):
    """With the numbers that do not fit, by an error meant for it, without a message to a rank that never answers."""
    run, _ = trained(ranks, subject, 2, schedule, **options, **REFUSAL)
    checks.pipeline_refusals.assert_refused(run, subject.make("pipeline").refusals, named)


@pytest.mark.claim("C8")
def test_c8_a_boundary_that_tensor_ranks_do_not_divide_is_refused(ranks, subject):
    """Three numbers over two tensor ranks: unequal parts would be gathered into the wrong places."""
    subject.require("pipeline.tensor_boundary")
    run, _ = trained(ranks, subject, 4, "fill_drain", kind="index", tensor_ranks=2, **REFUSAL)
    checks.pipeline_refusals.assert_refused(run, subject.make("pipeline").refusals, ("2 tensor ranks",))


@pytest.mark.claim("C8")
@pytest.mark.parametrize("schedule", cases.SCHEDULES)
def test_c8_fewer_micro_batches_than_ranks_are_refused_or_right(schedule, ranks, subject):
    """Never a hang, and never some ranks refusing while others wait; named are 2 and the ranks or all their stages."""
    run, case = trained(ranks, subject, 3, schedule, 2, **REFUSAL)
    named = ("2", f"3|{3 * case.plan.stages_per_rank}")
    if not checks.pipeline_refusals.all_refused(run, subject.make("pipeline").refusals, named):
        checks.pipeline.Judge(run, case).gradients()


@pytest.mark.claim("C9")
@pytest.mark.parametrize("schedule", cases.ENGINES)
def test_c9_pipelines_side_by_side_take_the_mean_over_all_data(schedule, ranks, subject):
    """Two pipelines of two ranks: gradients are reduced once a step, after the last micro-batch of each stage."""
    subject.require("pipeline.replicas")
    judge = checks.pipeline.Judge(*trained(ranks, subject, 4, schedule, replicas=2))
    judge.values()
    judge.parameters()


@pytest.mark.claim("C10")
@pytest.mark.parametrize("schedule", ["fill_drain", "one_f_one_b"])
def test_c10_ranks_work_at_the_same_time(schedule, ranks, subject, evidence):
    """Stages sleep, so cores do not matter. One after another would leave a share of at least 1 − 1/p idle."""
    world, m, pause_s = 3, 8, 0.003
    run, _ = trained(ranks, subject, world, schedule, m, steps=3, pause_s=pause_s)
    steps = checks.pipeline_order.occupancy(run)[1:]  # the first step warms up
    ratios = [1 - sum(busy_s) / (world * makespan_s) for makespan_s, busy_s in steps]
    evidence.on("pipeline_chain", schedule=schedule, world=world, micro_batches=m, pause_s=pause_s)
    evidence.measured(
        bubble_ratio=ratios,
        modelled_bubble_ratio=float(cost.bubble_ratio(world, m)),
        stage_time_s=[busy_s for _, busy_s in steps],
        micro_batches_per_s=[m / makespan_s for makespan_s, _ in steps],
        events=checks.pipeline_order.timed(run),
    )
    best = ratios.index(min(ratios))
    evidence.figures(idle_ratio=ratios[best], per_rank=steps[best][1], compute_s=max(steps[best][1]))
    evidence.timed("step", [[makespan_s for makespan_s, _ in steps]] * world, warmup=1)
    checks.pipeline_order.assert_concurrent(run, steps, m, cost.training_slots(world, m) * pause_s)
