"""Mutants of PAR-PIPELINE-SCHEDULE that compute or send something wrong (the catalogue says what)."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from parproof.errors import InvalidPlan
from parproof.subjects.pipeline_protocol import Boundary, PipelineModel, PipelinePlan, SplitGradients
from parproof.subjects.protocol import Subject
from parproof.subjects.reference.pipeline import Pipeline
from parproof.subjects.reference.pipeline_lacks import LACKS
from parproof.subjects.reference.pipeline_order import Work
from parproof.subjects.reference.pipeline_stage import Kept, Stage
from parproof.subjects.reference.pipeline_training import Training
from parproof.subjects.reference.pipeline_wire import Message, Wire

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


class SharesTheLoss(Training):
    def step(self, inputs: Tensor | None, targets: Tensor | None) -> list[Tensor]:
        losses = super().step(inputs, targets)
        total = torch.stack(losses).sum() if losses else torch.zeros((), dtype=torch.float64)
        source = dist.get_global_rank(self.wire.group, self.wire.placement[-1])
        dist.broadcast(total, source, group=self.wire.group)
        return losses


# -- messages --------------------------------------------------------------------------------------------------


class WaitsForSends(Wire):
    def send(self, tensors: Sequence[Tensor], peer: int) -> None:
        super().send(tensors, peer)
        self.finish()


class SinglePrecision(Wire):
    def send(self, tensors: Sequence[Tensor], peer: int) -> None:
        super().send([x.float() if x.is_floating_point() else x for x in tensors], peer)

    def expected(self, message: Message) -> list[Boundary]:
        return [
            Boundary(b.shape, torch.float32 if b.differentiable else b.dtype, b.differentiable)
            for b in super().expected(message)
        ]

    def receive(self, message: Message, peer: int) -> list[Tensor]:
        return [x.double() if x.is_floating_point() else x for x in super().receive(message, peer)]


class GradientsOfIntegers(Wire):
    def send(self, tensors: Sequence[Tensor], peer: int) -> None:
        super().send([*tensors, torch.zeros(1)], peer)

    def expected(self, message: Message) -> list[Boundary]:
        return [*super().expected(message), Boundary((1,), torch.float32)]

    def receive(self, message: Message, peer: int) -> list[Tensor]:
        return super().receive(message, peer)[:-1]


class LocalPeers(Wire):
    def send(self, tensors: Sequence[Tensor], peer: int) -> None:
        for x in tensors:
            dist.send(x.detach().contiguous(), peer)


# -- refusals, backward in two parts -----------------------------------------------------------------------------


class Lenient(Pipeline):
    """Skips the refusals whose text contains `ignored`."""

    ignored = ""

    def check(
        self, plan: PipelinePlan, model: PipelineModel, group: dist.ProcessGroup, batch_size: int
    ) -> None:
        try:
            super().check(plan, model, group, batch_size)
        except InvalidPlan as refusal:
            if self.ignored not in str(refusal):
                raise


class StaleReturn(Pipeline):
    def split_backward(
        self, stage: nn.Module, inputs: Sequence[Tensor], output_grads: Sequence[Tensor]
    ) -> SplitGradients:
        before = [p.grad for p in stage.parameters()]
        return SplitGradients(super().split_backward(stage, inputs, output_grads).inputs, before)


class OneRankRefuses(Pipeline):
    def check(
        self, plan: PipelinePlan, model: PipelineModel, group: dist.ProcessGroup, batch_size: int
    ) -> None:
        if group.rank() == group.size() - 1 or "over" not in self.refusal(plan, model, group, batch_size):
            super().check(plan, model, group, batch_size)

    def refusal(self, *arguments: Any) -> str:
        try:
            super().check(*arguments)
        except InvalidPlan as refusal:
            return str(refusal)
        return ""


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
    shares_the_loss=_with(training=SharesTheLoss),
    waits_for_sends=_with(wire=WaitsForSends),
    single_precision_wire=_with(wire=SinglePrecision),
    sends_a_header=_with(wire=GradientsOfIntegers),
    local_peers=_with(wire=LocalPeers),
    accepts_uneven=_with(Lenient, ignored="batch of"),
    accepts_no_micro_batch=_with(Lenient, ignored="0 micro-batches"),
    one_rank_refuses=OneRankRefuses,
    stale_return=StaleReturn,
)

# One subject a lie, by the names of the catalogue.
globals().update(
    {
        name: Subject(name=name, mechanisms={"pipeline": f"{__name__}:LIES.{name}"}, lacks=LACKS)
        for name in vars(LIES)
    }
)
