"""Pipeline parallelism from first principles: refusals, a scheduler, stages, and messages between neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch.distributed as dist
from torch import Tensor, nn

from parproof.errors import InvalidPlan
from parproof.subjects.pipeline_protocol import (
    SCHEDULES,
    Boundary,
    Observer,
    PipelineModel,
    PipelinePlan,
    SplitGradients,
)
from parproof.subjects.reference.pipeline_order import V_SHAPED, WHERE, Scheduler
from parproof.subjects.reference.pipeline_stage import Stage
from parproof.subjects.reference.pipeline_training import Training
from parproof.subjects.reference.pipeline_wire import PartsWire, Wire


class Pipeline:
    """All schedules on one engine."""

    scheduler: type[Scheduler] = Scheduler
    stage: type[Stage] = Stage
    wire: type[Wire] = Wire
    parts_wire: type[PartsWire] = PartsWire
    training: type[Training] = Training
    setup: Sequence[Boundary] = ()
    refusals: Sequence[str] = ("InvalidPlan",)

    def build(
        self,
        plan: PipelinePlan,
        model: PipelineModel,
        group: dist.ProcessGroup,
        observe: Observer,
        *,
        batch_size: int,
        data_group: dist.ProcessGroup | None = None,
        tensor_group: dist.ProcessGroup | None = None,
    ) -> Training:
        """See the protocol."""
        self.check(plan, model, group, batch_size)
        self.check_parts(plan, model, tensor_group)
        scheduler = self.scheduler(plan, group.size())
        orders, placement = scheduler.orders(), scheduler.ranks
        last = len(placement) - 1
        stages = {
            k: self.stage(k, module, model.loss if k == last else None) for k, module in model.stages.items()
        }
        made = self.wire if tensor_group is None else self.parts_wire
        device = next((p.device for module in model.stages.values() for p in module.parameters()), None)
        wire = made(group, orders, placement, model.boundaries, device, tensor_group, plan.rows)
        return self.training(plan, stages, wire, observe, model.tied, data_group)

    def check(
        self, plan: PipelinePlan, model: PipelineModel, group: dist.ProcessGroup, batch_size: int
    ) -> None:
        """Refuse what cannot run, the same on every rank: everything looked at is known to all."""
        p, m = group.size(), plan.num_micro_batches
        if plan.schedule not in SCHEDULES:
            raise InvalidPlan(
                f"schedule {plan.schedule!r}", expected=f"one of {', '.join(SCHEDULES)}", where=WHERE
            )
        if m < 1:
            raise InvalidPlan(f"{m} micro-batches", expected="at least 1", where=WHERE)
        self.check_rows(plan, batch_size)
        least = {"fill_drain": 1, "dual_pipe_v": 2 * p}.get(plan.schedule, p)
        if m < least:
            raise InvalidPlan(
                f"{m} micro-batches over {p} ranks ({plan.schedule})",
                expected=f"at least {least}",
                where=WHERE,
                next_step="use more micro-batches, or fill_drain, which runs with any number",
            )
        if plan.schedule == "interleaved" and m % (m // p):
            raise InvalidPlan(
                f"{m} micro-batches in {m // p} rounds", expected=f"a multiple of {p}", where=WHERE
            )
        self.check_stages(plan, model, group)

    def check_stages(self, plan: PipelinePlan, model: PipelineModel, group: dist.ProcessGroup) -> None:
        """The number of stages is known to all; which ones a rank got, to it alone."""
        p, v, found = group.size(), plan.stages_per_rank, len(model.boundaries) + 1
        fits = dict.fromkeys(V_SHAPED, v == 2) | {"interleaved": v >= 1, "breadth_first": v >= 1}
        if not fits.get(plan.schedule, v == 1) or found != p * v or len(model.stages) != v:
            raise InvalidPlan(
                f"{found} stages over {p} ranks, {len(model.stages)} of them on rank {group.rank()}"
                f" ({plan.schedule}, stages_per_rank {v})",
                expected="stages_per_rank stages on each rank, as many as the schedule places",
                where=WHERE,
            )

    def check_rows(self, plan: PipelinePlan, batch_size: int) -> None:
        """Equal parts, or the rows that the plan states."""
        m, rows = plan.num_micro_batches, plan.rows
        if rows and (len(rows) != m or min(rows) < 1 or sum(rows) != batch_size):
            raise InvalidPlan(
                f"micro-batches of {', '.join(map(str, rows))} rows: {sum(rows)} rows in {len(rows)} parts",
                expected=f"{batch_size} rows in {m} parts, none of them empty",
                where=WHERE,
            )
        if not rows and (batch_size < 1 or batch_size % m):
            raise InvalidPlan(
                f"batch of {batch_size} in {m} micro-batches",
                expected=f"a positive multiple of {m}",
                where=WHERE,
                next_step="state the rows of each micro-batch in the plan, or drop or pad some",
            )

    def check_parts(
        self, plan: PipelinePlan, model: PipelineModel, tensor_group: dist.ProcessGroup | None
    ) -> None:
        """Every rank of the tensor group sends an equal part, of every micro-batch."""
        t = 1 if tensor_group is None else tensor_group.size()
        for stage, leaving in enumerate(model.boundaries):
            for boundary in leaving:
                one_row = math.prod(boundary.shape[1:])
                counts = [rows * one_row for rows in plan.rows or boundary.shape[:1]]
                if count := next((count for count in counts if count % t), 0):
                    raise InvalidPlan(
                        f"{count} elements of {boundary.shape} behind stage {stage} over {t} tensor ranks",
                        expected=f"a multiple of {t}",
                        where=WHERE,
                        next_step="send whole tensors, or choose sizes that divide",
                    )

    def split_backward(
        self, stage: nn.Module, inputs: Sequence[Tensor], output_grads: Sequence[Tensor]
    ) -> SplitGradients:
        """See the protocol."""
        alone = self.stage(1, stage, None)
        alone.forward(0, inputs, None)
        outputs = alone.kept[0].outputs
        grads = [g for x, g in zip(outputs, output_grads, strict=True) if x.is_floating_point()]
        found = iter(alone.backward_to_inputs(0, grads))
        to_inputs = [next(found) if x.is_floating_point() else None for x in inputs]
        alone.backward_to_weights(0)
        return SplitGradients(to_inputs, [p.grad for p in stage.parameters()])
