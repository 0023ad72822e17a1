"""torch.distributed.pipelining: its stages and schedules with their defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from torch.distributed.pipelining import _backward as split
from torch.distributed.tensor import DTensor

from parproof.subjects.pipeline_protocol import (
    Boundary,
    Observer,
    PipelineModel,
    PipelinePlan,
    SplitGradients,
)

SINGLE: dict[str, Any] = {"fill_drain": ScheduleGPipe, "one_f_one_b": Schedule1F1B}
MULTI: dict[str, Any] = {
    "interleaved": ScheduleInterleaved1F1B,
    "breadth_first": ScheduleLoopedBFS,
    "zero_bubble": ScheduleInterleavedZeroBubble,
    "zero_bubble_v": ScheduleZBVZeroBubble,
    "dual_pipe_v": ScheduleDualPipeV,
}


class ObservedStage(PipelineStage):
    """Tells the observer when a schedule runs a part of it; changes nothing else."""

    observe: Observer

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """Forward of one micro-batch."""
        self.observe("F", "start", self.stage_index, fwd_chunk_id)
        out = super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
        self.observe("F", "end", self.stage_index, fwd_chunk_id)
        return out

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """Backward of one micro-batch: whole, or only to the inputs."""
        kind = "B" if full_backward else "I"
        self.observe(kind, "start", self.stage_index, bwd_chunk_id)
        super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)
        self.observe(kind, "end", self.stage_index, bwd_chunk_id)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """Backward of one micro-batch to the weights."""
        self.observe("W", "start", self.stage_index, bwd_chunk_id)
        super().backward_weight_one_chunk(bwd_chunk_id, last_backward)
        self.observe("W", "end", self.stage_index, bwd_chunk_id)


class Training:
    """See PipelineTraining of the protocol."""

    def __init__(self, schedule: Any, stages: dict[int, PipelineStage], num_stages: int) -> None:
        self.schedule, self.stages, self.num_stages = schedule, stages, num_stages

    def step(self, inputs: Tensor | None, targets: Tensor | None) -> list[Tensor]:
        """See the protocol."""
        losses: list[Tensor] = []
        arguments = () if inputs is None else (inputs,)
        if targets is None:
            self.schedule.step(*arguments)
        else:
            self.schedule.step(*arguments, target=targets, losses=losses)
        return [loss.detach() for loss in losses]

    def gradients(self, stage: int) -> dict[str, Tensor | None]:
        """See the protocol."""
        return {n: _whole(p.grad) for n, p in self.stages[stage].submod.named_parameters()}

    def parameters(self, stage: int) -> dict[str, Tensor]:
        """See the protocol."""
        found = {n: _whole(p.detach()) for n, p in self.stages[stage].submod.named_parameters()}
        return {n: p for n, p in found.items() if p is not None}


class Pipeline:
    """Everything is left to torch, refusals too.

    Before its first step each stage tells its neighbours, by a vote, whether shapes have to be inferred.
    What torch checks, it refuses with a ValueError, and with a plain RuntimeError where torch.tensor_split does it.
    """

    setup = (Boundary((1,), torch.int32),)
    refusals = ("ValueError", "RuntimeError")

    def build(
        self,
        plan: PipelinePlan,
        model: PipelineModel,
        group: dist.ProcessGroup,
        observe: Observer,
        *,
        batch_size: int,
        data_group: dist.ProcessGroup | None = None,
    ) -> Training:
        """See the protocol."""
        num_stages = len(model.boundaries) + 1
        tensors = (p for module in model.stages.values() for p in module.parameters())
        device = next((p.device for p in tensors), torch.device("cpu"))
        stages: dict[int, PipelineStage] = {}
        for index, module in model.stages.items():
            if data_group is not None:
                fully_shard(module, mesh=DeviceMesh.from_group(data_group, device.type))
            stage = ObservedStage(module, index, num_stages, device, group=group)
            stage.observe = observe
            stages[index] = stage
        if plan.schedule in SINGLE:
            first = next(iter(stages.values()))  # such a schedule takes one stage, however many there are
            schedule = SINGLE[plan.schedule](first, plan.num_micro_batches, loss_fn=model.loss)
        else:
            made = MULTI[plan.schedule]
            schedule = made(list(stages.values()), plan.num_micro_batches, loss_fn=model.loss)
        return Training(schedule, stages, num_stages)

    def split_backward(
        self, stage: nn.Module, inputs: Sequence[Tensor], output_grads: Sequence[Tensor]
    ) -> SplitGradients:
        """See the protocol. The weights' gradients are the values that torch's function returns."""
        leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
        out = stage(*leaves)
        outputs = [out] if isinstance(out, Tensor) else list(out)
        to_inputs, groups = split.stage_backward_input(
            outputs, list(output_grads), leaves, stage.parameters()
        )
        to_weights = split.stage_backward_weight(stage.parameters(), groups)
        return SplitGradients(to_inputs, to_weights)


def _whole(x: Tensor | None) -> Tensor | None:
    return x.full_tensor() if isinstance(x, DTensor) else x
