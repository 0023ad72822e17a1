"""Judging whole runs of PAR-ZERO-STATE against the single process and the cost model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parproof import oracles, workloads
from parproof.checks import zero_bounds
from parproof.checks import zero_state as state
from parproof.checks.ledger import assert_ledger
from parproof.cost.state_bytes import SHARDED, Layout, Model, held_bytes, step_traffic

if TYPE_CHECKING:
    from parproof.cost.traffic import Traffic
    from parproof.oracles.zero import Trajectory
    from parproof.programs.zero import Course
    from parproof.ranks.run import Run

SAMPLES = 24
STATE = ("parameters", "exp_avg", "exp_avg_sq")


def assert_first_gradients(run: Run, truth: Trajectory, dtype: str = "float64") -> None:
    """Step-1 gradients, tensor by tensor, within the bound of re-associated sums."""
    __tracebackhide__ = True
    expected = truth.gradients[0]
    limits = zero_bounds.gradient_bounds(expected, world=run.world_size, samples=SAMPLES, dtype=dtype)
    seen = [result["gradients"][0] for result in run.results]
    state.assert_pieces(seen, expected, what="gradients", bounds=limits)


def assert_hook_saw(run: Run, truth: Trajectory) -> None:
    """A communication hook is given the rank's own gradients, undivided, and its result is what counts."""
    __tracebackhide__ = True
    expected = truth.gradients[0]
    limits = zero_bounds.gradient_bounds(expected, world=run.world_size, samples=SAMPLES)
    state.assert_mean([result["raw"] for result in run.results], expected, bounds=limits)
    seen = [result["gradients"] for result in run.results]
    state.assert_pieces(seen, expected, what="gradients", bounds=limits)


def assert_same_bits(run: Run, truth: Trajectory) -> None:
    """Losses, gradients of each step, parameters and moments: equal, without a bound."""
    __tracebackhide__ = True
    for window, gradients in enumerate(truth.gradients):
        seen = [result["gradients"][window] for result in run.results]
        state.assert_pieces(seen, gradients, what=f"gradients of window {window}", bounds=None)
        state.assert_loss(run.results, window, truth, bound=0.0)
    for kind in STATE:
        seen = [result[kind] for result in run.results]
        state.assert_pieces(seen, getattr(truth, kind), what=kind, bounds=None)


def assert_trained(run: Run, course: Course, truth: Trajectory, *, dtype: str = "float64") -> None:
    """Losses, gradients of each step, norms, parameters, moments and step counts, each within its bound."""
    __tracebackhide__ = True
    results = run.results
    near = zero_bounds.drift(truth, course.plan, world=len(results), samples=SAMPLES, dtype=dtype)
    # Before the first update nothing has drifted: its gradients have the tight bound, tensor by tensor.
    fresh = zero_bounds.gradient_bounds(truth.gradients[0], world=len(results), samples=SAMPLES, dtype=dtype)
    for window, gradients in enumerate(truth.gradients):
        seen = [result["gradients"][window] for result in results]
        limits = near.gradient if window else fresh
        state.assert_pieces(seen, gradients, what=f"gradients of window {window}", bounds=limits)
        state.assert_norm(results, window, truth.norms[window], bound=near.gradient)
        state.assert_loss(results, window, truth, bound=near.loss)
    for kind in STATE:
        seen = [result[kind] for result in results]
        state.assert_pieces(seen, getattr(truth, kind), what=kind, bounds=getattr(near, kind))
    state.assert_steps(results, truth.steps)


Held = Sequence[Mapping[str, Any]]


def assert_resumed(resumed: Held, uninterrupted: Held, course: Course, *, how: str = "") -> None:
    """Parameters, moments and step counts at the end, bit for bit, whatever the number of ranks.

    resumed, uninterrupted   what each rank held
    """
    __tracebackhide__ = True
    sizes = workloads.zero.sizes(course.kind)
    for kind in STATE:
        whole = state.assembled([result[kind] for result in uninterrupted], sizes)
        seen = [result[kind] for result in resumed]
        state.assert_pieces(seen, whole, what=f"{how}resumed {kind}", bounds=None)
    counts: dict[str, int] = {}
    for result in uninterrupted:
        counts |= result["steps"]
    state.assert_steps(resumed, counts)


def assert_moved(legs: Sequence[Run], whole: Run, course: Course) -> None:
    """Each leg, on a number of ranks of its own, ends where the uninterrupted run was after as many windows.

    The losses of legs and uninterrupted run are those of the parameters held, so what was loaded is what is used.
    """
    __tracebackhide__ = True
    for number, leg in enumerate(legs):
        held = [result[-1] for result in leg.results]
        uninterrupted = [result[number] for result in whole.results]
        how = f"from {legs[number - 1].world_size} to {leg.world_size} ranks: " if number else ""
        assert_resumed(held, uninterrupted, course, how=how)
        assert_losses_of_what_is_held(held, course, number, how=how)
        assert_losses_of_what_is_held(uninterrupted, course, number, how="uninterrupted: ")


def assert_losses_of_what_is_held(held: Held, course: Course, window: int, *, how: str) -> None:
    """The mean of the ranks' losses is the loss at the parameters they held before; `linear` only.

    Bound  two sums of the same terms, in any order, each term rounded at most 64 times (docs/numerics.md)
    """
    __tracebackhide__ = True
    sizes = workloads.zero.sizes(course.kind)
    before = state.assembled([result["before"] for result in held], sizes)
    wanted, terms = oracles.zero.loss_at(course.kind, before, window)
    losses = [loss for result in held for loss in result["losses"]]
    mean, bound = sum(losses) / len(losses), 64 * zero_bounds.EPS["float64"] * terms
    if not abs(mean - wanted) <= bound:
        raise AssertionError(
            f"all {len(held)} ranks: {how}loss of window {window} is {mean!r}, expected {wanted!r} within"
            f" {bound:.3e}, the loss at the parameters that the ranks held"
        )


def assert_foreign(loaded: Held, saved: Held, course: Course, named: str, *, exact_will_do: bool) -> None:
    """A checkpoint of something else: refused by name on every rank, or (of another dtype) loaded without rounding."""
    __tracebackhide__ = True
    refusals = [rank for rank, result in enumerate(loaded) if result["kinds"]]
    if refusals or not exact_will_do:
        return assert_refused(loaded, named)
    sizes = workloads.zero.sizes(course.kind)
    for kind in STATE:
        whole = state.assembled([result[kind] for result in saved], sizes)
        wide = {name: value.double() for name, value in whole.items()}
        seen = [{n: [(at, p.double()) for at, p in v] for n, v in r[kind].items()} for r in loaded]
        state.assert_pieces(seen, wide, what=f"loaded {kind}", bounds=None)
    return None


def assert_owners(run: Run, course: Course) -> None:
    """What is sharded has one owner per element in each shard group; the rest is on every rank."""
    __tracebackhide__ = True
    layout = layout_of(run, course)
    cut = dict(zip(("parameters", "gradients", "exp_avg"), SHARDED[course.plan.strategy], strict=True))
    cut["parameters"] = layout.gathers_units
    for kind, sharded in cut.items():
        seen = [r["gradients"][0] if kind == "gradients" else r[kind] for r in run.results]
        copies = course.plan.replicas if sharded else run.world_size
        state.assert_owned(seen, workloads.zero.sizes(course.kind), what=kind, copies=copies)


def assert_resident(run: Run, course: Course) -> None:
    """Bytes held after backward and after the step, per object; whether it is mixed where bytes do not tell."""
    __tracebackhide__ = True
    apart = run.results[0]["layout"].masters == "apart"
    layout, model = layout_of(run, course), model_of(course, masters_apart=apart)
    optimizer_bytes = 12 if course.plan.mixed_bf16 and apart else 8
    if course.plan.mixed_bf16 and not apart:
        assert_gathers_bfloat16(run)
    for rank, result in enumerate(run.results):
        formula = held_bytes(model, layout, rank % layout.world_size, optimizer_bytes=optimizer_bytes)
        where = run.where(rank)
        state.assert_bytes(result["after_backward"], formula, where=f"{where}: after backward")
        kept = formula["gradients"] if result["layout"].keeps_buckets else 0
        after = formula | {"gradients": 0, "other": kept}
        state.assert_bytes(result["after_step"], after, where=f"{where}: after step")


def assert_gathers_bfloat16(run: Run) -> None:
    """Float32 at rest is mixed precision only if it is cast where it is gathered."""
    __tracebackhide__ = True
    for rank, rows in enumerate(run.ledgers):
        gathers = [row for row in rows if row.op == "all_gather" and row.phase.endswith("/forward")]
        wrong = next((row.dtype for row in gathers if row.dtype != "bfloat16"), None)
        if wrong is not None or not gathers:
            raise AssertionError(
                f"{run.where(rank)}: parameters are gathered for forward in {wrong or 'no call'},"
                " expected bfloat16: masters at rest are float32"
            )


def predicted(run: Run, course: Course) -> list[Traffic]:
    """What a window of this course sends, by the cost model."""
    return step_traffic(model_of(course), layout_of(run, course), course.plan.accumulation)


def assert_step_traffic(run: Run, lines: Sequence[Traffic], window: int) -> None:
    """One window, phase by phase."""
    __tracebackhide__ = True
    for rank, rows in enumerate(run.ledgers):
        assert_ledger(state.rows_of(rows, f"window{window}"), lines, where=run.where(rank))


def assert_quiet(run: Run, course: Course, window: int) -> None:
    """No micro-batch but the last sends a gradient; parameters may be gathered for each."""
    __tracebackhide__ = True
    once = step_traffic(model_of(course), layout_of(run, course), 1)
    gathers = [line for line in once if line.op == "all_gather" and line.phase in ("forward", "backward")]
    for rank, rows in enumerate(run.ledgers):
        for micro in range(course.plan.accumulation - 1):
            inside = f"window{window}/micro{micro}"
            where = f"{run.where(rank)}, {inside}"
            assert_ledger(state.rows_of(rows, inside), gathers, where=where)


def layout_of(run: Run, course: Course) -> Layout:
    """The strategy as the subject lays it out, for the cost model."""
    plan, chosen = course.plan, run.results[0]["layout"]
    ranks = run.world_size // plan.replicas
    return Layout(plan.strategy, chosen.ownership, chosen.parameters_at_rest, ranks, plan.replicas)


def model_of(course: Course, *, masters_apart: bool = True) -> Model:
    """Shapes of the course's model; bytes of its parameters and gradients between steps."""
    itemsize = {"float64": 8, "float32": 4}[course.dtype]
    if course.plan.mixed_bf16:
        itemsize = 2 if masters_apart else 4
    return Model(workloads.zero.trainable_shapes(course.kind), itemsize)


REFUSALS = ("InvalidPlan", "UsageError", "ValueError", "RuntimeError", "CheckpointException")
_REPEATED = re.compile(r"StatePlan\((?:[^()]|\([^()]*\))*\)|\S*/\S*")


def assert_refused(results: Sequence[Mapping[str, Any]], named: str) -> None:
    """Every rank raises an error that is a refusal (of `REFUSALS`) and names what is wrong.

    As a word of its own, not as a part of «parameter», and not in the plan or a path that the error repeats.
    """
    __tracebackhide__ = True
    word = re.compile(f"(?<![a-z]){named}s?(?![a-z])", re.IGNORECASE)
    for rank, result in enumerate(results):
        where = f"rank {rank} of {len(results)}"
        if not result["kinds"]:
            raise AssertionError(
                f"{where}: not refused: {result['text']}; expected an error that names {named!r}"
            )
        if result["kinds"][0] not in REFUSALS:
            raise AssertionError(
                f"{where}: no refusal but an accident: {result['kinds'][0]}: {result['text']};"
                f" expected {', '.join(REFUSALS[:-1])} or {REFUSALS[-1]}"
            )
        if not word.search(_REPEATED.sub("…", result["text"])):
            raise AssertionError(f"{where}: refused with {result['text']!r}, expected it to name {named!r}")
