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
from parproof.workloads.context import Turn, Whole


def attend(
    ctx: RankContext,
    subject: SubjectRef,
    plan: ContextPlan,
    wholes: Sequence[Whole],
) -> dict[str, Any]:
    """Take this rank's positions of its group's data, attend, go backward; one group for each of `wholes`.

    Positions come from the subject; q, k, v are handed in as transposed (non-contiguous) views, as models do.
    """
    group, place = _group(ctx, len(wholes))
    return _call(ctx, subject.make("context"), plan, wholes[place], group)


def _group(ctx: RankContext, num_groups: int) -> tuple[ProcessGroup, int]:
    """This rank's one of so many interleaved groups, and which it is: group r mod g of rank r, or the world."""
    if num_groups == 1:
        return ctx.group, 0
    place = ctx.rank % num_groups
    groups = [dist.new_group(list(range(i, ctx.world_size, num_groups))) for i in range(num_groups)]
    return groups[place], place


def attend_often(
    ctx: RankContext,
    subject: SubjectRef,
    turns: Sequence[Turn],
    calls: int,
) -> tuple[list[dict[str, Any]], dict[str, list[float]]]:
    """One instance takes the plans and data in turn: what each call gave, and its seconds, with the start aligned."""
    attention, made = subject.make("context"), []
    for call in range(calls):
        ctx.group.barrier().wait()
        turn = turns[call % len(turns)]
        made.append(_call(ctx, attention, turn.plan, turn.whole, ctx.group))
    return made, {phase: [of_call["seconds"][phase] for of_call in made] for phase in made[0]["seconds"]}


def _call(
    ctx: RankContext,
    attention: ContextAttention,
    plan: ContextPlan,
    whole: Whole,
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
    wholes: Sequence[Sequence[Whole]],
    shared: Sequence[Mapping[str, Tensor]],
) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """As attend, with tensors that every rank of a group holds, in one call after another of one layer.

    wholes, shared   one for each group; wholes[group][n] are the data of call n, in phases «call<n>/forward» …
    Returns          (what each call gave, gradients of what is shared, which come last, in phase «finish»)
    """
    attention, (group, place) = subject.make("context"), _group(ctx, len(wholes))
    layer = attention.sharing(shared[place], plan, group)
    made = []
    for n, whole in enumerate(wholes[place]):
        with ctx.phase(f"call{n}"):
            made.append(_call(ctx, attention, plan, whole, group, layer))
    with ctx.phase("finish"):
        gradients = {name: t.detach().contiguous() for name, t in layer.gradients().items()}
    return made, gradients


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
