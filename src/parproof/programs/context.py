"""Rank programs of PAR-CONTEXT-RING."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from parproof.ranks.context import RankContext
from parproof.subjects.context_protocol import ContextAttention, ContextPlan, Partial, SharingAttention
from parproof.subjects.protocol import SubjectRef


def attend(
    ctx: RankContext,
    subject: SubjectRef,
    plan: ContextPlan,
    whole: tuple[Tensor, Tensor, Tensor, Tensor],
    interleaved_groups: bool = False,
) -> dict[str, Any]:
    """Take this rank's positions, attend, go backward; in the whole world or in two interleaved groups.

    Positions come from the subject; q, k, v are handed in as transposed (non-contiguous) views, as models do.
    """
    return _call(ctx, subject.make("context"), plan, whole, _group(ctx, interleaved_groups))


def _group(ctx: RankContext, interleaved: bool) -> ProcessGroup:
    """The world, or this rank's one of two groups of every other rank."""
    if not interleaved:
        return ctx.group
    groups = [dist.new_group(list(range(first, ctx.world_size, 2))) for first in (0, 1)]
    mine: ProcessGroup = groups[ctx.rank % 2]
    return mine


def attend_often(
    ctx: RankContext,
    subject: SubjectRef,
    plan: ContextPlan,
    whole: tuple[Tensor, Tensor, Tensor, Tensor],
    calls: int,
) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """What the last of several calls of one instance gave, and the seconds of each, with the start aligned."""
    attention = subject.make("context")
    seconds: dict[str, list[float]] = {"forward": [], "backward": []}
    for _ in range(calls):
        ctx.group.barrier().wait()
        last = _call(ctx, attention, plan, whole, ctx.group)
        for phase, taken in last["seconds"].items():
            seconds[phase].append(taken)
    return last, seconds


def _call(
    ctx: RankContext,
    attention: ContextAttention,
    plan: ContextPlan,
    whole: tuple[Tensor, Tensor, Tensor, Tensor],
    group: ProcessGroup,
    layer: SharingAttention | None = None,
) -> dict[str, Any]:
    """One forward and one backward pass: the results, the bytes of all that this rank holds, and the seconds."""
    positions = attention.positions(plan, group.rank(), group.size())
    q, k, v, d_out = (_transposed_leaf(t[:, :, positions]) for t in whole)
    started_s = time.perf_counter()
    with ctx.phase("forward"):
        out = attention.attend(q, k, v, plan, group) if layer is None else layer(q, k, v)
    between_s = time.perf_counter()
    with ctx.phase("backward"):
        out.backward(d_out.detach())
    seconds = {"forward": between_s - started_s, "backward": time.perf_counter() - between_s}
    found = {"out": out.detach(), "dq": q.grad, "dk": k.grad, "dv": v.grad}
    state = {"q": q, "k": k, "v": v} | found
    held = {name: t.untyped_storage().nbytes() for name, t in state.items() if t is not None}
    return {"positions": positions, "held_bytes": held, "seconds": seconds} | {
        name: None if t is None else t.contiguous() for name, t in found.items()
    }


def attend_sharing(
    ctx: RankContext,
    subject: SubjectRef,
    plan: ContextPlan,
    whole: tuple[Tensor, Tensor, Tensor, Tensor],
    shared: Mapping[str, Tensor],
    interleaved_groups: bool = False,
) -> dict[str, Any]:
    """As attend, with tensors that every rank holds; their gradients come last, in phase «finish»."""
    attention, group = subject.make("context"), _group(ctx, interleaved_groups)
    layer = attention.sharing(shared, plan, group)
    made = _call(ctx, attention, plan, whole, group, layer)
    with ctx.phase("finish"):
        made["shared"] = {name: t.detach().contiguous() for name, t in layer.gradients().items()}
    return made


def _transposed_leaf(x: Tensor) -> Tensor:
    """The same values as a view with heads and positions swapped in memory."""
    return x.transpose(1, 2).contiguous().transpose(1, 2).detach().requires_grad_(x.dtype.is_floating_point)


def refusal(
    ctx: RankContext,
    subject: SubjectRef,
    plan: ContextPlan,
    heads: int,
    kv_heads: int,
    shared: Mapping[str, Sequence[int]] | None = None,
) -> str:
    """What a plan that cannot be is answered with; «accepted» when nothing objects. shared: shapes of such tensors."""
    attention = subject.make("context")
    length = max(1, plan.sequence_length // ctx.world_size)
    q = torch.ones(2, heads, length, 4)
    kv = torch.ones(2, kv_heads, length, 4)
    try:
        attention.positions(plan, ctx.rank, ctx.world_size)
        if shared is None:
            attention.attend(q, kv, kv, plan, ctx.group)
        else:
            tensors = {name: torch.ones(*shape) for name, shape in shared.items()}
            attention.sharing(tensors, plan, ctx.group)(q, kv, kv)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


FLOAT64 = torch.float64


def partials(q: Tensor, k: Tensor, v: Tensor, num_blocks: int) -> list[Partial]:
    """Causal softmax sums over blocks of keys, by their definition; no rank is involved."""
    size = k.shape[2] // num_blocks
    made = []
    for block in range(num_blocks):
        keys = slice(block * size, (block + 1) * size)
        scores = (q @ k[:, :, keys].transpose(-1, -2)) * q.shape[-1] ** -0.5
        future = torch.arange(k.shape[2])[keys].unsqueeze(0) > torch.arange(q.shape[2]).unsqueeze(1)
        scores = scores.masked_fill(future, -torch.inf)
        peak = scores.amax(-1)
        weights = torch.exp(scores - peak.masked_fill(peak == -torch.inf, 0.0).unsqueeze(-1))
        made.append(Partial(peak, weights.sum(-1), weights @ v[:, :, keys]))
    return made
