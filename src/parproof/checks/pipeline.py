"""Checks of the pipeline experiment: values against one process, and what a step held."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from parproof.checks.bounds import cancellation_bound
from parproof.checks.values import assert_exact, assert_within
from parproof.cost.pipeline import placement, rank_live_limit
from parproof.cost.pipeline_orders import orders
from parproof.cost.pipeline_timeline import peak_live_per_rank, peak_live_per_stage
from parproof.errors import InvalidPlan
from parproof.ranks.run import Run

if TYPE_CHECKING:
    from torch import Tensor

    from parproof.cost.pipeline import Event
    from parproof.oracles.pipeline import Answer
    from parproof.workloads.pipeline_cases import Training

EPS = 2.0**-52


def ranks_of_one(case: Training, world: int) -> int:
    """Ranks of each of the pipelines side by side."""
    return world // case.side_by_side


def places(case: Training, world: int) -> list[int]:
    """Rank of each stage, within one pipeline."""
    return placement(case.plan.schedule, ranks_of_one(case, world), case.plan.stages_per_rank)


def canonical(case: Training, world: int) -> list[list[Event]] | None:
    """The order of every rank, where the schedule's name leaves no choice.

    A zero-bubble V is what has no bubble within its memory, however its order was found.
    """
    plan = case.plan
    if plan.schedule == "zero_bubble_v":
        return None
    try:
        return orders(plan.schedule, ranks_of_one(case, world), plan.num_micro_batches, plan.stages_per_rank)
    except InvalidPlan:
        return None


@functools.cache
def answer(case: Training, world: int) -> Answer:
    """The oracle's training of the same model on the same data."""
    from parproof.oracles import pipeline as oracle
    from parproof.programs.pipeline import LR
    from parproof.workloads import pipeline as models

    net = models.net(case.kind, len(places(case, world)))
    num_batches = case.steps * case.windows * case.replicas
    batches = [models.batch(case.rows, i) for i in range(num_batches)]
    return oracle.train(
        net.stages,
        batches=[batches[r :: case.replicas] for r in range(case.replicas)],
        loss=models.mean_square,
        rows=case.cut,
        windows=case.windows,
        lr=LR,
        descending=case.plan.schedule == "breadth_first",
    )


@dataclass(frozen=True)
class Judge:
    """Compares results of a training with the oracle's.

    exact   equality: the same additions in the same order, and a division by a power of two. Otherwise, and for
            micro-batches that are not equal, within the bound of docs/numerics.md#pipeline.
    """

    run: Run
    case: Training
    exact: bool = True

    @property
    def answer(self) -> Answer:
        """The oracle's training."""
        return answer(self.case, self.run.world_size)

    def values(self) -> None:
        """Losses of the first step, gradients of the last, then the losses that follow from wrong updates."""
        self.losses(range(1))
        self.gradients()
        self.losses(range(1, len(self.answer.losses)))

    def losses(self, steps: Sequence[int]) -> None:
        """One loss for each micro-batch, in order, where the last stage is; no losses elsewhere."""
        last = places(self.case, self.run.world_size)[-1]
        p = ranks_of_one(self.case, self.run.world_size)
        for rank, result in enumerate(self.run.results):
            where, found = self.run.where(rank), result["losses"]
            for step in steps:
                expected = self.answer.losses[step]
                wanted = (
                    expected[rank // p % self.case.replicas :: self.case.replicas] if rank % p == last else []
                )
                if len(found[step]) != len(wanted):
                    raise AssertionError(
                        f"{where}: step {step}: {len(found[step])} losses, expected {len(wanted)}"
                    )
                for micro, (one, other) in enumerate(zip(found[step], wanted, strict=True)):
                    self._same(one, other, other.abs(), where, f"loss of micro-batch {micro} of step {step}")

    def gradients(self) -> None:
        """Every parameter of every stage, of the last step; None exactly where the oracle has none."""
        for rank, stage, found in self._stages("gradients"):
            for name, expected in self.answer.gradients[stage].items():
                if (found[name] is None) != (expected is None):
                    raise AssertionError(
                        f"{self.run.where(rank)}: gradient of {name} of stage {stage}:"
                        f" {'none' if found[name] is None else 'one'} arrived, expected the other"
                    )
        for rank, stage, found in self._stages("gradients"):
            for name, expected in self.answer.gradients[stage].items():
                terms = self.answer.terms[stage][name]
                if expected is not None and terms is not None:
                    what = f"gradient of {name} of stage {stage}"
                    self._same(found[name], expected, terms, self.run.where(rank), what)

    def parameters(self) -> None:
        """Every parameter after all updates."""
        for rank, stage, found in self._stages("parameters"):
            for name, expected in self.answer.parameters[stage].items():
                terms = self.answer.terms[stage][name]
                scale = expected.abs() if terms is None else expected.abs() + terms
                what = f"parameter {name} of stage {stage} after {self.case.steps} updates"
                self._same(found[name], expected, scale, self.run.where(rank), what)

    def _stages(self, key: str) -> Sequence[tuple[int, int, dict[str, Tensor]]]:
        return [
            (rank, stage, found)
            for rank, result in enumerate(self.run.results)
            for stage, found in result[key].items()
        ]

    def _same(self, one: Tensor, other: Tensor, terms: Tensor, where: str, what: str) -> None:
        if self.exact and not self.case.plan.rows:
            assert_exact(one, other, where=where, what=what)
            return
        length = self.case.rows * 16
        bound = cancellation_bound(EPS, absolute_norm=float(terms.norm()), ranks=2, length=length)
        assert_within(one, other, bound=bound, where=where, what=what)


# -- what is held -------------------------------------------------------------------------------------------------


def assert_live(run: Run, case: Training, observed: Sequence[Sequence[Event]]) -> list[int]:
    """Peaks of live activations, in micro-batches and in rows, as the autograd graphs show them.

    Returns the micro-batches of each rank.

    Equal to the model's where the order is canonical; else no more than the schedule's limit, and what the
    observed order says.
    """
    p = run.world_size
    placed, model = places(case, p), canonical(case, p)
    stages = peak_live_per_stage(model or observed, len(placed))
    in_rows = peak_live_per_stage(model or observed, len(placed), case.cut)
    totals = peak_live_per_rank(model or observed)
    for rank, result in enumerate(run.results):
        log, where = result["log"], run.where(rank)
        if log.left_over:
            raise AssertionError(
                f"{where}: activations of {log.left_over} micro-batches alive after the step"
            )
        for what, peaks, expected in (
            ("micro-batches", log.peak_live, stages),
            ("rows", log.peak_live_rows, in_rows),
        ):
            for stage, peak in sorted(peaks.items()):
                if peak != expected[stage]:
                    raise AssertionError(
                        f"{where}: stage {stage} held activations of {peak} {what}, expected {expected[stage]}"
                    )
        limit = totals[rank] if model else rank_live_limit(case.plan.schedule, p, case.plan.num_micro_batches)
        if log.peak_live_all > limit:
            raise AssertionError(
                f"{where}: its stages held {log.peak_live_all} activations at once, expected at most {limit}"
            )
    return [result["log"].peak_live_all for result in run.results]


def assert_split(
    found: dict[str, list[Tensor | None]], expected: dict[str, list[Tensor | None]], where: str
) -> None:
    """Backward in two parts against backward in one: equal, input by input and weight by weight."""
    for key, values in expected.items():
        for k, (one, other) in enumerate(zip_longest(found[key], values)):
            what = f"gradient {k} of {key}"
            if one is None and other is None:
                continue
            if one is None or other is None:
                raise AssertionError(
                    f"{where}: {what}: {'none' if one is None else 'one'} came, not so in one pass"
                )
            bound = cancellation_bound(EPS, absolute_norm=float(other.norm()), ranks=2, length=64)
            assert_within(one, other, bound=bound, where=where, what=what)
