"""PAR-ZERO-STATE: parameters, gradients and optimizer state on several ranks.

Question   Which part of the training state is sharded, what does that save, what does it send, and is the
           training still the same?
Baseline   one process that trains on the whole batch, textbook Adam, float64.
Candidate  --subject: ddp, zero1, zero2, zero3 and hsdp (2 groups of 2).
Claims     C1   gradients of the first step equal the baseline's, tensor by tensor.
           C2   after three steps of accumulation, clipping and AdamW: losses, gradients of each step,
                parameters and optimizer state equal the baseline's; exactly, where the arithmetic is exact.
           C3   owner maps partition: what is sharded has one owner per element, the rest is on every rank.
           C4   resident bytes by object equal the formulas, and nothing else is held.
           C5   a step sends what the strategy says, per phase, and nothing else.
           C6   inside a window no gradient is sent; the result is that of the whole window.
           C7   every rank reports the baseline's gradient norm and clips by it.
           C8   tied, frozen, unused, one-element and mixed-dtype parameters are trained as in the baseline.
           C9   saved, resumed and re-sharded training equals the uninterrupted one, bit for bit.
           C10  what cannot be trained is refused by name; use that differs by rank is right or refused.
Not shown  time, overlap, wire bytes (gloo sends a reduce-scatter as an all-reduce), activations, peak memory
           inside a unit, DDP's buckets where gradients are copies of them.
"""

import dataclasses

import pytest

from parproof import oracles, workloads
from parproof.checks import assert_ledger
from parproof.checks import zero_bounds as bounds
from parproof.checks import zero_state as judge
from parproof.cost import state_bytes as cost
from parproof.programs import zero as programs
from parproof.programs.zero import Course
from parproof.ranks.failure import RankFailure
from parproof.subjects.zero_protocol import StatePlan

pytestmark = [pytest.mark.experiment("PAR-ZERO-STATE"), pytest.mark.lanes("cpu", "cuda2")]

SAMPLES = 24
STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "hsdp")
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
# hsdp needs two groups of at least two; three ranks leave uneven shards everywhere.
WORLD = {"ddp": 3, "zero1": 3, "zero2": 3, "zero3": 3, "hsdp": 4}
over_worlds = pytest.mark.parametrize(
    ("strategy", "world"), [(s, w) for s in STRATEGIES for w in (2, 3, 4) if s != "hsdp" or w == 4], ids=str
)


def plan_for(subject, strategy, **changes):
    """A plan of a strategy; skips, with the reason, when the subject has no such thing."""
    subject.require(f"zero.{strategy}")
    return StatePlan(strategy, replicas=2 if strategy == "hsdp" else 1, **changes)


def baseline(course):
    """The single process on the same course, up to its last window."""
    return oracles.zero.single_process(course.kind, course.plan, course.first_window + course.windows)


def assert_trained(results, course, truth, *, dtype="float64"):
    """Losses, gradients of each step, norms, parameters, moments and step counts, each within its bound."""
    __tracebackhide__ = True
    near = bounds.drift(truth, course.plan, world=len(results), samples=SAMPLES, dtype=dtype)
    judge.assert_losses(results, truth.losses, bound=near.loss)
    judge.assert_norms(results, truth.norms, bound=near.gradient)
    for window, gradients in enumerate(truth.gradients):
        seen = [result["gradients"][window] for result in results]
        judge.assert_pieces(seen, gradients, what=f"gradients of window {window}", bounds=near.gradient)
    for kind in ("parameters", "exp_avg", "exp_avg_sq"):
        seen = [result[kind] for result in results]
        judge.assert_pieces(seen, getattr(truth, kind), what=kind, bounds=getattr(near, kind))
    judge.assert_steps(results, truth.steps)


def layout_of(run, course):
    """The strategy as this subject lays it out, for the cost model."""
    plan, chosen = course.plan, run.results[0]["layout"]
    ranks = run.world_size // plan.replicas
    return cost.Layout(plan.strategy, chosen.ownership, chosen.parameters_at_rest, ranks, plan.replicas)


@pytest.mark.claim("C1")
@over_worlds
def test_c1_gradients_of_the_first_step(strategy, world, ranks, subject):
    """Within the bound of re-associated sums; on two ranks addition leaves no freedom, so bit for bit."""
    course = Course("smooth", plan_for(subject, strategy, accumulation=2), windows=1)
    results = ranks(world).run(programs.train, subject, course).results
    (truth,) = baseline(course).gradients
    seen = [result["gradients"][0] for result in results]
    limits = bounds.gradient_bounds(truth, world=world, samples=SAMPLES)
    judge.assert_pieces(seen, truth, what="gradients", bounds=limits)
    if world == 2:
        ordered = oracles.zero.gradient_in_rank_order("smooth", next(iter(truth.values())).dtype, 2, 2)
        judge.assert_pieces(seen, ordered, what="gradients", bounds=None)


@pytest.mark.claim("C1")
@pytest.mark.parametrize("kind", ["penalty", "recomputed", "mixed16"])
@every_strategy
def test_c1_gradients_of_unusual_backward_passes(kind, strategy, ranks, subject):
    """A loss with a gradient in it, recomputed activations, and bfloat16 with float32 master copies."""
    subject.require(f"zero.{kind}.{strategy}")
    mixed = kind == "mixed16"
    course = Course("smooth" if mixed else kind, plan_for(subject, strategy, mixed_bf16=mixed), windows=1)
    results = ranks(WORLD[strategy]).run(programs.train, subject, course).results
    (truth,) = baseline(course).gradients
    limits = bounds.gradient_bounds(
        truth, world=len(results), samples=SAMPLES, dtype="bfloat16" if mixed else "float64"
    )
    judge.assert_pieces([r["gradients"][0] for r in results], truth, what="gradients", bounds=limits)


@pytest.mark.claim("C2")
@over_worlds
def test_c2_three_steps_of_adamw(strategy, world, ranks, subject):
    """Two micro-batches a step, clipping, decay: everything a training leaves behind."""
    plan = plan_for(subject, strategy, accumulation=2, max_norm=4.0, weight_decay=0.1)
    course = Course("smooth", plan)
    results = ranks(world).run(programs.train, subject, course).results
    assert_trained(results, course, baseline(course))


@pytest.mark.claim("C2")
@pytest.mark.parametrize("world", [2, 4], ids="W{}".format)
@every_strategy
def test_c2_three_steps_on_integers_are_exact(strategy, world, ranks, subject):
    """Integer data and powers of two everywhere: no rounding, so any correct order gives the same bits."""
    plan = plan_for(subject, strategy, accumulation=2, optimizer="sgd", lr=2.0**-4)
    course = Course("integers", plan)
    results = ranks(world).run(programs.train, subject, course).results
    truth = baseline(course)
    judge.assert_losses(results, truth.losses, bound=0.0)
    for window, gradients in enumerate(truth.gradients):
        seen = [r["gradients"][window] for r in results]
        judge.assert_pieces(seen, gradients, what=f"gradients of window {window}", bounds=None)
    judge.assert_pieces([r["parameters"] for r in results], truth.parameters, what="parameters", bounds=None)


@pytest.mark.claim("C3")
@over_worlds
def test_c3_owner_maps_partition(strategy, world, ranks, subject):
    """251 parameters divide by nothing; hsdp owns each element once in each of its two groups."""
    course = Course("smooth", plan_for(subject, strategy), windows=1)
    run = ranks(world).run(programs.train, subject, course)
    layout, sizes = layout_of(run, course), workloads.zero.sizes("smooth")
    cut = dict(zip(("parameters", "gradients", "exp_avg"), cost.SHARDED[strategy], strict=True))
    cut["parameters"] = layout.gathers_units
    for kind, sharded in cut.items():
        seen = [r["gradients"][0] if kind == "gradients" else r[kind] for r in run.results]
        copies = course.plan.replicas if sharded else world
        judge.assert_owned(seen, sizes, what=kind, copies=copies)


@pytest.mark.claim("C4")
@pytest.mark.parametrize("precision", ["float32", "mixed16"])
@over_worlds
def test_c4_resident_bytes(precision, strategy, world, ranks, subject, evidence):
    """Storages that are really held: 4 + 4 + 8 bytes a parameter, or 2 + 2 + 12, divided where sharded."""
    mixed = precision == "mixed16"
    if mixed:
        subject.require(f"zero.mixed16.{strategy}")
    course = Course("smooth", plan_for(subject, strategy, mixed_bf16=mixed), 2, "float32")
    run = ranks(world).run(programs.bytes_held, subject, course)
    layout = layout_of(run, course)
    model = cost.Model(workloads.zero.trainable_shapes("smooth"), 2 if mixed else 4)
    for rank, result in enumerate(run.results):
        index = rank % layout.world_size
        formula = cost.held_bytes(model, layout, index, optimizer_bytes=12 if mixed else 8)
        where = run.where(rank)
        judge.assert_bytes(result["after_backward"], formula, where=f"{where}: after backward")
        kept = formula["gradients"] if result["layout"].keeps_buckets else 0
        after = formula | {"gradients": 0, "other": kept}
        judge.assert_bytes(result["after_step"], after, where=f"{where}: after step")
    evidence.measured(after_backward_bytes=[r["after_backward"] for r in run.results])


@pytest.mark.claim("C5")
@over_worlds
def test_c5_traffic_of_a_step(strategy, world, ranks, subject, evidence):
    """The third window: wrappers exchange set-up messages in the first two."""
    course = Course("smooth", plan_for(subject, strategy, accumulation=2, max_norm=4.0))
    run = ranks(world).run(programs.train, subject, course)
    model = cost.Model(workloads.zero.trainable_shapes("smooth"), 8)
    predicted = cost.step_traffic(model, layout_of(run, course), accumulation=2)
    evidence.predict(predicted)
    for rank, rows in enumerate(run.ledgers):
        assert_ledger(judge.rows_of(rows, "window2"), predicted, where=run.where(rank))
