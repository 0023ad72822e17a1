"""Mutants of PAR-PIPELINE-SCHEDULE that compute or send something wrong (the catalogue says what)."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from parproof.subjects.protocol import Subject
from parproof.subjects.reference.pipeline import Pipeline
from parproof.subjects.reference.pipeline_lacks import LACKS
from parproof.subjects.reference.pipeline_order import Work
from parproof.subjects.reference.pipeline_stage import Kept, Stage
from parproof.subjects.reference.pipeline_training import Training

# -- stages ----------------------------------------------------------------------------------------------------


class OverwritesGradients(Stage):
    def backward(self, micro: int, grads: Sequence[Tensor] | None) -> list[Tensor]:
        for p in self.module.parameters():
            p.grad = None
        return super().backward(micro, grads)


class DoubleCountsShared(Stage):
    @staticmethod
    def accumulate(weights: Sequence[nn.Parameter], found: Sequence[Tensor | None]) -> None:
        Stage.accumulate(weights, found)
        if len(weights) == 1 and weights[0].ndim == 2 and weights[0].shape[0] == weights[0].shape[1]:
            Stage.accumulate(weights, found)


class SumsOntoFirstOutput(Stage):
    def _pairs(self, kept: Kept, grads: Sequence[Tensor] | None) -> tuple[list[Tensor], list[Tensor | None]]:
        outputs, paired = super()._pairs(kept, grads)
        if len(outputs) > 1:
            known = [g for g in paired if g is not None]
            paired = [torch.stack(known).sum(0), *(torch.zeros_like(g) for g in known[1:])]
        return outputs, paired


class ForgetsSkips(Stage):
    def _pairs(self, kept: Kept, grads: Sequence[Tensor] | None) -> tuple[list[Tensor], list[Tensor | None]]:
        outputs, paired = super()._pairs(kept, grads)
        made = [k for k, x in enumerate(outputs) if x.grad_fn is not None]
        return [outputs[k] for k in made], [paired[k] for k in made]


class ForgetsRequiresGrad(Stage):
    def forward(self, micro: int, inputs: Sequence[Tensor], target: Tensor | None) -> list[Tensor]:
        outputs = super().forward(micro, inputs, target)
        leaves = self.kept[micro].inputs
        self.kept[micro].inputs = [torch.empty_like(x).requires_grad_(x.requires_grad) for x in leaves]
        return outputs


class ReusesLeaves(Stage):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.buffers: dict[int, list[Tensor]] = {}

    def forward(self, micro: int, inputs: Sequence[Tensor], target: Tensor | None) -> list[Tensor]:
        buffers = self.buffers.setdefault(micro, [x.detach().clone() for x in inputs])
        for buffer, x in zip(buffers, inputs, strict=True):
            buffer.grad = None
            buffer.data.copy_(x)
        out = self.module(*(b.requires_grad_(self.index > 0 and b.is_floating_point()) for b in buffers))
        outputs = [out] if isinstance(out, Tensor) else list(out)
        if self.loss is not None and target is not None:
            outputs = [self.loss(outputs[0], target)]
        self.kept[micro] = Kept(buffers, outputs, [])
        return outputs


class UpdatesFrozen(Stage):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.module.requires_grad_(True)


# -- means -----------------------------------------------------------------------------------------------------


class ScalesAtEveryStage(Training):
    def hand_on(self, work: Work, made: list[Tensor], target: int) -> None:
        if work.kind != "F":
            made = [g / self.plan.num_micro_batches for g in made]
        super().hand_on(work, made, target)


class SumsMicroBatches(Training):
    def mean(self) -> None:
        for p in self.trained():
            if p.grad is not None:
                p.grad *= self.plan.num_micro_batches
        super().mean()


class MeanOfMeans(Training):
    def share(self, micro: int) -> list[Tensor] | None:
        return None


class DividesAgain(Training):
    def _put_back(self, before: list[Tensor | None]) -> None:
        super()._put_back([None if g is None else g / self.plan.num_micro_batches for g in before])


class DropsEarlierSteps(Training):
    def _put_back(self, before: list[Tensor | None]) -> None:
        return


class DelayedGradients(Training):
    def mean(self) -> None:
        super().mean()
        now = [p.grad for p in self.trained()]
        for p, g in zip(self.trained(), getattr(self, "delayed", now), strict=True):
            p.grad = g
        self.delayed = now


class KeepsTiedApart(Training):
    def tie(self) -> None:
        return


class AveragesTied(Training):
    def tie(self) -> None:
        super().tie()
        for stage, name in self.tied:
            if stage in self.stages:
                weight = self.stages[stage].module.get_parameter(name)
                weight.grad = weight.grad / 2 if weight.grad is not None else None


class MeansPerStage(Training):
    def trained(self) -> list[nn.Parameter]:
        return [p for s in self.stages.values() for p in s.module.parameters() if p.requires_grad]


class SumsReplicas(Training):
    def mean(self) -> None:
        super().mean()
        if self.data_group is not None:
            for p in self.trained():
                p.grad = p.grad * self.data_group.size() if p.grad is not None else None


class ReducesBeforeTheLast(Training):
    def _backward(self, work: Work) -> None:
        if (
            self.data_group is not None
            and work.kind in "BW"
            and work.micro == self.plan.num_micro_batches - 1
        ):
            for p in self.stages[work.stage].module.parameters():
                g = torch.zeros_like(p) if p.grad is None else p.grad
                dist.all_reduce(g, group=self.data_group)
                p.grad = g / self.data_group.size()
        super()._backward(work)

    def mean(self) -> None:
        group, self.data_group = self.data_group, None
        super().mean()
        self.data_group = group


class OtherTargets(Training):
    def step(self, inputs: Tensor | None, targets: Tensor | None) -> list[Tensor]:
        m = self.plan.num_micro_batches
        shifted = None if targets is None else targets.roll(-len(targets) // m, 0)
        return super().step(inputs, shifted)


class UnorderedLosses(Training):
    def step(self, inputs: Tensor | None, targets: Tensor | None) -> list[Tensor]:
        return super().step(inputs, targets)[::-1]


def _with(base: type[Pipeline] = Pipeline, **parts: object) -> type[Pipeline]:
    return type("Mutant", (base,), parts)


LIES = SimpleNamespace(
    overwrites_gradients=_with(stage=OverwritesGradients),
    double_counts_shared=_with(stage=DoubleCountsShared),
    sums_onto_first_output=_with(stage=SumsOntoFirstOutput),
    forgets_skips=_with(stage=ForgetsSkips),
    forgets_requires_grad=_with(stage=ForgetsRequiresGrad),
    reuses_leaves=_with(stage=ReusesLeaves),
    updates_frozen=_with(stage=UpdatesFrozen),
    scales_at_every_stage=_with(training=ScalesAtEveryStage),
    sums_micro_batches=_with(training=SumsMicroBatches),
    micro_batches_count_alike=_with(training=MeanOfMeans),
    divides_again=_with(training=DividesAgain),
    drops_earlier_steps=_with(training=DropsEarlierSteps),
    delayed_gradients=_with(training=DelayedGradients),
    keeps_tied_apart=_with(training=KeepsTiedApart),
    averages_tied=_with(training=AveragesTied),
    means_per_stage=_with(training=MeansPerStage),
    sums_pipelines=_with(training=SumsReplicas),
    reduces_before_the_last=_with(training=ReducesBeforeTheLast),
    other_targets=_with(training=OtherTargets),
    unordered_losses=_with(training=UnorderedLosses),
)

# One subject a lie, by the names of the catalogue.
globals().update(
    {
        name: Subject(name=name, mechanisms={"pipeline": f"{__name__}:LIES.{name}"}, lacks=LACKS)
        for name in vars(LIES)
    }
)
