"""Mutants of PAR-PIPELINE-SCHEDULE that work in another order, hold too much, or misreport (see the catalogue)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import torch
from torch import Tensor

from parproof.subjects.protocol import Subject
from parproof.subjects.reference.pipeline import Pipeline
from parproof.subjects.reference.pipeline_lacks import LACKS
from parproof.subjects.reference.pipeline_order import Scheduler, Work
from parproof.subjects.reference.pipeline_stage import Stage
from parproof.subjects.reference.pipeline_training import Training


class Greedy(Scheduler):
    def has_room(self, work: Work, rank: int, live: int, ahead: int) -> bool:
        return True


class Hoards(Scheduler):
    def in_flight(self, rank: int) -> int:
        return super().in_flight(rank) + (self.plan.schedule.startswith("zero_bubble") and 1)


class HoldsBackForwards(Scheduler):
    def has_room(self, work: Work, rank: int, live: int, ahead: int) -> bool:
        kept_free = rank + 1 if self.plan.schedule == "zero_bubble_v" and work.stage < self.p else 0
        return super().has_room(work, rank, live + kept_free, ahead)


class OneAtATime(Scheduler):
    def orders(self) -> list[list[Work]]:
        made = super().orders()
        if self.plan.schedule == "zero_bubble_v" and self.m < 2 * self.p - 1:
            return [sorted(order, key=lambda work: work.micro) for order in made]
        return made


class BackwardFirst(Scheduler):
    def urgency(self, work: Work) -> tuple[int, int, int]:
        return "BIFW".index(work.kind), -work.stage, work.micro


class NeverSplits(Scheduler):
    def orders(self) -> list[list[Work]]:
        made = super().orders()
        if self.plan.schedule != "dual_pipe_v":
            return made
        whole = [[w._replace(kind="B") if w.kind == "I" else w for w in order] for order in made]
        return [[w for w in order if w.kind != "W"] for order in whole]


class OneTooFew(Scheduler):
    def in_flight(self, rank: int) -> int:
        return max(1, super().in_flight(rank) - (self.plan.schedule == "one_f_one_b"))


class FillDrainInstead(Scheduler):
    def orders(self) -> list[list[Work]]:
        if self.plan.schedule == "one_f_one_b":
            return [self._fill_drain(rank) for rank in range(self.p)]
        return super().orders()


class LastInFirstOut(Scheduler):
    def _fill_drain(self, rank: int) -> list[Work]:
        made = super()._fill_drain(rank)
        return made[: self.m] + made[self.m :][::-1]


class Serial(Scheduler):
    def orders(self) -> list[list[Work]]:
        return [sorted(order, key=lambda work: work.micro) for order in super().orders()]


class WeightsAtTheEnd(Scheduler):
    def orders(self) -> list[list[Work]]:
        return [sorted(order, key=lambda work: work.kind == "W") for order in super().orders()]


class LosesTheLast(Scheduler):
    def orders(self) -> list[list[Work]]:
        made = super().orders()
        if self.plan.schedule == "zero_bubble":
            for order in made:
                order.remove(max(work for work in order if work.kind == "W"))
        return made


class KeepsGraphs(Stage):
    def backward(self, micro: int, grads: Sequence[Tensor] | None) -> list[Tensor]:
        kept = self.kept[micro]
        outputs, paired = self._pairs(kept, grads)
        if outputs:
            torch.autograd.backward(outputs, paired, retain_graph=True)
        return [x.grad for x in kept.inputs if x.requires_grad and x.grad is not None]


class Reported(Training):
    """Reports the order of 1F1B after it has worked in another one."""

    def step(self, inputs: Tensor | None, targets: Tensor | None) -> list[Tensor]:
        told, self.observe = self.observe, lambda *entry: None
        losses = super().step(inputs, targets)
        self.observe = told
        for work in Scheduler(self.plan, self.wire.group.size()).orders()[self.wire.rank]:
            told(work.kind, "start", work.stage, work.micro)
            told(work.kind, "end", work.stage, work.micro)
        return losses


class ReportsEarly(Training):
    """Says that a backward has begun before the gradient it needs is there."""

    def _backward(self, work: Work) -> None:
        observe = self.observe
        self.observe = lambda kind, edge, *rest: observe(kind, edge, *rest) if edge == "end" else None
        observe(work.kind, "start", work.stage, work.micro)
        super()._backward(work)
        self.observe = observe


class SendsEarly(Training):
    """Hands a result on before it says that the work on it has ended."""

    def _observed(self, work: Work, run: Callable[[], list[Tensor]]) -> list[Tensor]:
        self.observe(work.kind, "start", work.stage, work.micro)
        made = run()
        target = None if work.kind == "W" else self.wire.target(work)
        if target is not None:
            self.hand_on(work, made, target)
        self.observe(work.kind, "end", work.stage, work.micro)
        return made


class Recomputes(Training):
    """Runs every forward a second time."""

    def _forward(self, work: Work, given: list[Tensor], target: Tensor | None) -> list[Tensor]:
        super()._forward(work, given, target)
        return super()._forward(work, given, target)


def _with(**parts: object) -> type[Pipeline]:
    return type("Mutant", (Pipeline,), parts)


LIES = SimpleNamespace(
    greedy=_with(scheduler=Greedy),
    hoards=_with(scheduler=Hoards),
    holds_back_forwards=_with(scheduler=HoldsBackForwards),
    one_at_a_time=_with(scheduler=OneAtATime),
    backward_first=_with(scheduler=BackwardFirst),
    never_splits=_with(scheduler=NeverSplits),
    one_too_few=_with(scheduler=OneTooFew),
    fill_drain_instead=_with(scheduler=FillDrainInstead),
    reports_what_it_did_not=_with(scheduler=FillDrainInstead, training=Reported),
    last_in_first_out=_with(scheduler=LastInFirstOut),
    one_after_the_other=_with(scheduler=Serial),
    weights_at_the_end=_with(scheduler=WeightsAtTheEnd),
    loses_the_last=_with(scheduler=LosesTheLast),
    keeps_graphs=_with(stage=KeepsGraphs),
    reports_early=_with(training=ReportsEarly),
    sends_early=_with(training=SendsEarly),
    recomputes=_with(training=Recomputes),
)

# One subject a lie, by the names of the catalogue.
globals().update(
    {
        name: Subject(name=name, mechanisms={"pipeline": f"{__name__}:LIES.{name}"}, lacks=LACKS)
        for name in vars(LIES)
    }
)
