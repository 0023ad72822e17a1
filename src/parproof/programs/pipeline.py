"""Rank programs of PAR-PIPELINE-SCHEDULE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from parproof import workloads
from parproof.cost.pipeline import placement
from parproof.programs.pipeline_watch import Watch
from parproof.ranks.context import RankContext
from parproof.subjects.pipeline_protocol import Boundary, PipelineModel
from parproof.subjects.protocol import SubjectRef
from parproof.workloads import pipeline as models
from parproof.workloads.pipeline_cases import Training

LR = 2.0**-3


def train(ctx: RankContext, subject: SubjectRef, case: Training) -> dict[str, Any]:
    """Train; give back losses, gradients of the last step, parameters, and the log of each step.

    Phases step0, step1, … hold what a step sends; inspect holds the gathering of results.
    """
    watch = Watch(ctx)
    group, across, replica = _groups(ctx, case)
    model = _model(case, group, ctx.device)
    watch.modules(model.stages, case.pause_s)
    training = subject.make("pipeline").build(
        case.plan, model, group, watch.observe, batch_size=case.rows, **across
    )
    weights = {id(p): p for s in model.stages.values() for p in s.parameters() if p.requires_grad}
    optimizer = torch.optim.SGD(list(weights.values()), lr=LR) if weights else None
    losses = []
    for step in range(case.steps):
        if optimizer is not None:
            optimizer.zero_grad()
        for window in range(case.windows):
            data = workloads.pipeline.batch(
                case.rows, (step * case.windows + window) * case.replicas + replica
            )
            watch.restart()
            with ctx.phase(f"step{step}"):
                losses.append(_step(training, model, data, ctx.device))
        with ctx.phase("inspect"):
            gradients = {s: _copies(training.gradients(s)) for s in model.stages}
        if optimizer is not None:
            optimizer.step()
    with ctx.phase("inspect"):
        parameters = {s: _copies(training.parameters(s)) for s in model.stages}
    logs = watch.finish()
    found = {"losses": losses, "gradients": gradients, "parameters": parameters}
    return found | {"log": logs[-1], "logs": logs}


def _groups(ctx: RankContext, case: Training) -> tuple[dist.ProcessGroup, dict[str, dist.ProcessGroup], int]:
    """(this rank's pipeline, the group of ranks with the same stages by its role, number of its data)."""
    if case.side_by_side == 1:
        return ctx.group, {}, 0
    p = ctx.world_size // case.side_by_side
    pipelines = [dist.new_group(list(range(r * p, (r + 1) * p))) for r in range(case.side_by_side)]
    across = [dist.new_group(list(range(place, ctx.world_size, p))) for place in range(p)]
    role = "data_group" if case.replicas > 1 else "tensor_group"
    return pipelines[ctx.rank // p], {role: across[ctx.rank % p]}, ctx.rank // p % case.replicas


def _model(case: Training, group: dist.ProcessGroup, device: torch.device) -> PipelineModel:
    """The stages that the schedule puts on this rank. A weight tied across ranks is a copy on each."""
    turns = max(1, case.plan.stages_per_rank, -(-(case.num_stages or 0) // group.size()))
    placed = placement(case.plan.schedule, group.size(), turns)[: case.num_stages]
    net = models.net(case.kind, len(placed))
    return PipelineModel(
        stages={s: net.stages[s].to(device) for s, rank in enumerate(placed) if rank == group.rank()},
        boundaries=[[Boundary(*tensor) for tensor in leaving] for leaving in net.leaving],
        loss=models.mean_square,
        tied=net.tied,
    )


def _step(
    training: Any, model: PipelineModel, data: tuple[Tensor, Tensor], device: torch.device
) -> list[Tensor]:
    has_last = len(model.boundaries) in model.stages
    inputs = data[0].to(device) if 0 in model.stages else None
    losses = training.step(inputs, data[1].to(device) if has_last else None)
    return [loss.cpu() for loss in losses]


def _copies(tensors: dict[str, Tensor | None]) -> dict[str, Tensor | None]:
    return {name: None if x is None else x.detach().clone().cpu() for name, x in tensors.items()}


def refusal(ctx: RankContext, subject: SubjectRef, case: Training) -> dict[str, Any]:
    """A plan that cannot be, or that needs care: the error it is answered with, or what training gave.

    kinds   names of the error's types, its own first; whether that is a refusal, the check decides
    """
    try:
        return train(ctx, subject, case) | {"refused": None, "kinds": []}
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return {"refused": f"{kinds[0]}: {error}", "kinds": kinds}


def split(ctx: RankContext, subject: SubjectRef, kind: str) -> dict[int, dict[str, list[Tensor | None]]]:
    """Backward in two parts of two stages alone, twice each: the second pass adds to the first one's gradients."""
    found = {}
    for index in (1, 2):
        stage = models.net(kind, 3).stages[index]
        inputs, output_grads = models.alone(kind, index)
        pipeline = subject.make("pipeline")
        first = pipeline.split_backward(stage, inputs, output_grads)
        entry = {"inputs": _list(first.inputs), "returned": _list(first.weights)}
        entry["once"] = _list([p.grad for p in stage.parameters()])
        pipeline.split_backward(stage, inputs, output_grads)
        found[index] = entry | {"twice": _list([p.grad for p in stage.parameters()])}
    return found


def _list(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    return [None if x is None else x.detach().clone() for x in tensors]
