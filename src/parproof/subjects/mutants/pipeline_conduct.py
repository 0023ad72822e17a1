"""Mutants of PAR-PIPELINE-SCHEDULE in what is sent, what is refused and what is handed back (see the catalogue)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
from parproof.subjects.reference.pipeline_training import Training
from parproof.subjects.reference.pipeline_wire import Message, PartsWire, Wire

# -- messages --------------------------------------------------------------------------------------------------


class SharesTheLoss(Training):
    def step(self, inputs: Tensor | None, targets: Tensor | None) -> list[Tensor]:
        losses = super().step(inputs, targets)
        total = torch.stack(losses).sum() if losses else torch.zeros((), dtype=torch.float64)
        source = dist.get_global_rank(self.wire.group, self.wire.placement[-1])
        dist.broadcast(total, source, group=self.wire.group)
        return losses


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


class WholeOnEveryLink(PartsWire):
    """Right values, at t times the bytes."""

    def send(self, tensors: Sequence[Tensor], peer: int) -> None:
        self.send_whole(tensors, peer)

    def receive(self, message: Message, peer: int) -> list[Tensor]:
        return Wire.receive(self, message, peer)

    def _post(self, boundary: Boundary, peer: int) -> tuple[dist.Work, Tensor]:
        return Wire._post(self, boundary, peer)


class PartsBackwards(PartsWire):
    def _whole(self, part: Tensor, boundary: Boundary) -> Tensor:
        whole = super()._whole(part, boundary)
        return whole.reshape(-1).view(self.tensor_group.size(), -1).flip(0).reshape(whole.shape)  # type: ignore[union-attr]


class GradientsOfIntegers(Wire):
    def send(self, tensors: Sequence[Tensor], peer: int) -> None:
        super().send([*tensors, torch.zeros(1)], peer)

    def expected(self, message: Message) -> list[Boundary]:
        return [*super().expected(message), Boundary((1,), torch.float32)]

    def receive(self, message: Message, peer: int) -> list[Tensor]:
        return super().receive(message, peer)[:-1]


class FirstBufferForAll(Wire):
    def expected(self, message: Message) -> list[Boundary]:
        kind, stage, _ = message
        return super().expected(Message((kind, stage, 0)))


class PadsToTheLargest(Wire):
    """Right values: what is too much is cut off on arrival."""

    def send(self, tensors: Sequence[Tensor], peer: int) -> None:
        largest = max(self.rows, default=0)
        padded = [torch.cat([x, x.new_zeros(max(0, largest - len(x)), *x.shape[1:])]) for x in tensors]
        super().send(padded, peer)

    def expected(self, message: Message) -> list[Boundary]:
        kind, stage, micro = message
        largest = self.rows.index(max(self.rows)) if self.rows else micro
        return super().expected(Message((kind, stage, largest)))

    def receive(self, message: Message, peer: int) -> list[Tensor]:
        rows = self.rows[message[2]] if self.rows else None
        return [x[:rows] for x in super().receive(message, peer)]


class LocalPeers(Wire):
    def send(self, tensors: Sequence[Tensor], peer: int) -> None:
        for x in tensors:
            dist.send(x.detach().contiguous(), peer)


# -- refusals, backward in two parts -----------------------------------------------------------------------------


class RefusesOtherwise(Pipeline):
    """Where the reference refuses with a text that contains `said`, it has an answer of its own."""

    said = ""

    def check(
        self, plan: PipelinePlan, model: PipelineModel, group: dist.ProcessGroup, batch_size: int
    ) -> None:
        try:
            super().check(plan, model, group, batch_size)
        except InvalidPlan as refusal:
            if self.said not in str(refusal):
                raise
            if (error := self.answer(plan, str(refusal))) is not None:
                raise error from refusal

    def answer(self, plan: PipelinePlan, text: str) -> Exception | None:
        """What it raises instead; None to go on as if nothing were wrong."""
        raise NotImplementedError


class Lenient(RefusesOtherwise):
    def answer(self, plan: PipelinePlan, text: str) -> None:
        return None


class FallsOver(RefusesOtherwise):
    """All its numbers are in the text, by chance."""

    def answer(self, plan: PipelinePlan, text: str) -> Exception:
        return KeyError(text)


class Asserts(RefusesOtherwise):
    said = "micro-batches over"

    def answer(self, plan: PipelinePlan, text: str) -> Exception:
        return AssertionError(text)


class NamesTheLimits(RefusesOtherwise):
    said = "0 micro-batches"

    def answer(self, plan: PipelinePlan, text: str) -> Exception:
        return InvalidPlan("wrong number of micro-batches", expected="1 to 10", where="pipeline plan")


class NamesOneSide(RefusesOtherwise):
    said = "micro-batches over"

    def answer(self, plan: PipelinePlan, text: str) -> Exception:
        return InvalidPlan(f"{plan.num_micro_batches} micro-batches are too few", where="pipeline plan")


class StaleReturn(Pipeline):
    def split_backward(
        self, stage: nn.Module, inputs: Sequence[Tensor], output_grads: Sequence[Tensor]
    ) -> SplitGradients:
        before = [p.grad for p in stage.parameters()]
        return SplitGradients(super().split_backward(stage, inputs, output_grads).inputs, before)


class CutsItsOwnWay(Pipeline):
    """As torch.tensor_split does, whatever the plan says; gradients are right all the same."""

    def build(self, plan: PipelinePlan, *rest: Any, **named: Any) -> Training:
        if plan.rows:
            parts = torch.arange(sum(plan.rows)).tensor_split(len(plan.rows))
            plan = replace(plan, rows=tuple(map(len, parts)))
        return super().build(plan, *rest, **named)


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


class MergesMicroBatches(Pipeline):
    def build(
        self, plan: PipelinePlan, model: PipelineModel, group: dist.ProcessGroup, *rest: Any, **named: Any
    ) -> Training:
        if plan.num_micro_batches % 4 == 0 and named["batch_size"] % max(1, plan.num_micro_batches) == 0:
            boundaries = [
                [replace(b, shape=(4 * b.shape[0], *b.shape[1:])) for b in leaving]
                for leaving in model.boundaries
            ]
            plan = replace(plan, num_micro_batches=plan.num_micro_batches // 4)
            model = replace(model, boundaries=boundaries)
        return super().build(plan, model, group, *rest, **named)

    def check(
        self, plan: PipelinePlan, model: PipelineModel, group: dist.ProcessGroup, batch_size: int
    ) -> None:
        return


def _with(base: type[Pipeline] = Pipeline, **parts: object) -> type[Pipeline]:
    return type("Mutant", (base,), parts)


LIES = SimpleNamespace(
    shares_the_loss=_with(training=SharesTheLoss),
    waits_for_sends=_with(wire=WaitsForSends),
    single_precision_wire=_with(wire=SinglePrecision),
    whole_on_every_link=_with(parts_wire=WholeOnEveryLink),
    parts_backwards=_with(parts_wire=PartsBackwards),
    sends_a_header=_with(wire=GradientsOfIntegers),
    first_buffer_for_all=_with(wire=FirstBufferForAll),
    pads_micro_batches=_with(wire=PadsToTheLargest),
    cuts_its_own_way=CutsItsOwnWay,
    local_peers=_with(wire=LocalPeers),
    accepts_uneven=_with(Lenient, said="batch of"),
    accepts_stages_left_over=_with(Lenient, said="stages over"),
    accepts_other_rows=_with(Lenient, said="micro-batches of"),
    accepts_no_micro_batch=_with(Lenient, said="0 micro-batches"),
    one_rank_refuses=OneRankRefuses,
    falls_over=FallsOver,
    asserts=Asserts,
    names_the_limits=NamesTheLimits,
    names_one_side=NamesOneSide,
    stale_return=StaleReturn,
    merges_micro_batches=MergesMicroBatches,
)

# One subject a lie, by the names of the catalogue.
globals().update(
    {
        name: Subject(name=name, mechanisms={"pipeline": f"{__name__}:LIES.{name}"}, lacks=LACKS)
        for name in vars(LIES)
    }
)
