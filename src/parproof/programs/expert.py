"""Rank programs of PAR-EXPERT-DISPATCH."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from parproof.ranks.context import RankContext
from parproof.subjects.expert_protocol import Axes, Routing
from parproof.subjects.protocol import SubjectRef
from parproof.subjects.tensor_protocol import Piece, Pieces
from parproof.workloads.expert import Case
from parproof.workloads.expert_meshes import Mesh


@dataclass(frozen=True)
class Outcome:
    """One case on one rank. input_gradient: None where the input was frozen, or nothing arrived."""

    output: Tensor
    input_gradient: Tensor | None
    gradients: Pieces
    routing: Routing
    loss: float


def axes_of(ctx: RankContext, mesh: Mesh) -> Axes:
    """The groups of this rank; every rank makes all groups, in one order."""
    me = mesh.place(ctx.rank)

    def along(varies: Callable[[tuple[int, int, int]], tuple[int, ...]]) -> ProcessGroup | None:
        """Ranks that share the coordinates which do not vary."""
        mine = None
        ranks_of: dict[tuple[int, ...], list[int]] = {}
        for rank in range(mesh.world):
            ranks_of.setdefault(varies(mesh.place(rank)), []).append(rank)
        for key, members in ranks_of.items():
            if len(members) == 1:
                continue
            group = ctx.group if len(members) == mesh.world else dist.new_group(members)
            mine = group if key == varies(me) else mine
        return mine

    return Axes(
        ep=along(lambda c: (c[0], c[2])),
        dp=along(lambda c: (c[1], c[2])),
        tp=along(lambda c: (c[0], c[1])),
        data=along(lambda c: (c[2],)),
        mesh=ctx.group if mesh.world > 1 else None,
    )


def step(
    ctx: RankContext, subject: SubjectRef, mesh: Mesh, cases: Sequence[Case], dtype: str = "float64"
) -> list[Outcome]:
    """Forward, loss, backward and finished gradients of every case, in phases «CASE/forward» and so on."""
    axes = axes_of(ctx, mesh)
    expert = subject.make("expert")
    return [_one(ctx, expert, axes, case, getattr(torch, dtype)) for case in cases]


def _one(ctx: RankContext, expert: Any, axes: Axes, case: Case, dtype: torch.dtype) -> Outcome:
    shard = case.shards[case.mesh.shard(ctx.rank)]
    here = ctx.device
    params = {name: p.to(here, dtype) for name, p in case.params.items()}
    x = shard.x.to(here, dtype).requires_grad_(not case.frozen_input)
    valid, upstream = shard.valid.to(here), shard.upstream.to(here, dtype)
    replayed = None if shard.replayed is None else shard.replayed.to(here)
    with ctx.phase(case.name):
        layer = expert.layer(case.plan, params, axes)
        with ctx.phase("forward"):
            out = layer(x, valid, replayed)
        with ctx.phase("loss"):
            loss = layer.mean_loss((out * upstream).sum(1), valid)
        with ctx.phase("backward"):
            loss.backward()
        with ctx.phase("finish"):
            gradients = layer.gradients()
    routing = layer.routing()
    return Outcome(
        output=out.detach().cpu(),
        input_gradient=None if x.grad is None else x.grad.cpu(),
        gradients={
            name: [Piece(piece.local.detach().cpu(), piece.index) for piece in pieces]
            for name, pieces in gradients.items()
        },
        routing=Routing(routing.ids.cpu(), routing.weights.cpu(), routing.kept.cpu()),
        loss=float(loss.detach()),
    )


def refusal(
    ctx: RankContext, subject: SubjectRef, mesh: Mesh, cases: Sequence[Case], disturb: str = ""
) -> list[str]:
    """What plans and routes that cannot be are answered with; «accepted» when nothing objects.

    disturb   bad_id: rank 1 replays an expert id that does not exist; tp: a tp rank gets other tokens
    """
    subject.require("expert.refusals")
    axes = axes_of(ctx, mesh)
    expert = subject.make("expert")
    answers = []
    for case in cases:
        shard = case.shards[case.mesh.shard(ctx.rank)]
        x, replayed = shard.x.clone(), shard.replayed
        if disturb == "bad_id" and replayed is not None and ctx.rank == 1:
            replayed = replayed.clone()
            replayed[-1, -1] = case.plan.num_experts
        if disturb == "tp" and mesh.place(ctx.rank)[2]:
            # Two tokens change places: every count stays as it was.
            x = x.flip(0)
        x, valid = x.to(ctx.device), shard.valid.to(ctx.device)
        replayed = None if replayed is None else replayed.to(ctx.device)
        params = {name: p.to(ctx.device) for name, p in case.params.items()}
        try:
            expert.layer(case.plan, params, axes)(x, valid, replayed)
            answers.append("accepted")
        except ValueError as error:
            answers.append(f"{type(error).__name__}: {error}")
    return answers
