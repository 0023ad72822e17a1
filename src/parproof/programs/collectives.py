"""Rank programs that call every collective of a subject, case by case, and hand back what every buffer holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from parproof.oracles.collectives import before
from parproof.programs.packing import Packed, pack
from parproof.ranks.context import RankContext
from parproof.subjects.collectives_protocol import Collectives
from parproof.subjects.protocol import SubjectRef
from parproof.workloads import collectives as workload
from parproof.workloads.collective_cases import LARGE_HALF, Buffer, Case, buffers, splits_of
from parproof.workloads.collectives import laid_out, surroundings


def bitwise_copy(x: Tensor) -> Tensor:
    """A copy that keeps invalid bytes: torch's own copy of a bool turns the byte 2 into 1."""
    return x.view(torch.uint8).clone().view(torch.bool) if x.dtype == torch.bool else x.clone()


class Laid:
    """The buffers of one call on this rank, in their layout."""

    def __init__(self, ctx: RankContext, case: Case, plan: Sequence[Buffer]) -> None:
        self.case = case
        self.plan = plan
        pairs = [laid_out(before(case, buffer, ctx.rank).to(ctx.device), case.layout) for buffer in plan]
        self.views = [view for view, _ in pairs]
        self.bases = [base for _, base in pairs]

    def of(self, role: str) -> list[Tensor]:
        """The tensors of one role, in order."""
        return [view for view, buffer in zip(self.views, self.plan, strict=True) if buffer.role == role]

    def after(self) -> list[Tensor]:
        """Copies of every view, then of what surrounds them."""
        around = [
            surroundings(base, tuple(view.shape), self.case.layout)
            for view, base in zip(self.views, self.bases, strict=True)
        ]
        return [bitwise_copy(view) for view in self.views] + around


def call(subject: Collectives, laid: Laid, group: Any, p: int, me: int, async_op: bool = False) -> Any:
    """Make the one call that the case names."""
    case, options = laid.case, {"group": group, "async_op": async_op}
    ins, outs, inouts = laid.of("in"), laid.of("out"), laid.of("inout")
    match case.op:
        case "all_reduce":
            return subject.all_reduce(inouts[0], case.reduce_op, **options)  # type: ignore[arg-type]
        case "reduce":
            return subject.reduce(inouts[0], case.reduce_op, case.root, **options)  # type: ignore[arg-type]
        case "broadcast":
            return subject.broadcast(inouts[0], case.root, **options)  # type: ignore[arg-type]
        case "all_gather":
            return subject.all_gather(outs, ins[0], **options)
        case "all_gather_single":
            return subject.all_gather_single(outs[0], ins[0], **options)
        case "reduce_scatter":
            return subject.reduce_scatter(outs[0], ins, case.reduce_op, **options)  # type: ignore[arg-type]
        case "reduce_scatter_single":
            return subject.reduce_scatter_single(outs[0], ins[0], case.reduce_op, **options)  # type: ignore[arg-type]
        case "all_to_all":
            return subject.all_to_all(outs, ins, **options)
        case "all_to_all_single":
            return subject.all_to_all_single(outs[0], ins[0], *splits_of(case, p, me), **options)
        case "scatter":
            return subject.scatter(outs[0], ins or None, case.root, **options)  # type: ignore[arg-type]
    return subject.gather(outs or None, ins[0], case.root, **options)  # type: ignore[arg-type]


def run_cases(
    ctx: RankContext, subject: Collectives, cases: Sequence[Case], group: Any, p: int, me: int
) -> list[Tensor]:
    """Each case in a ledger phase of its own; a rank outside the group (me < 0) calls too, as rank 0 would."""
    found: list[Tensor] = []
    for number, case in enumerate(cases):
        laid = Laid(ctx, case, buffers(case, p, max(me, 0)))
        with ctx.phase(f"case{number}"):
            call(subject, laid, group, p, me)
        found += laid.after()
    return found


def over_the_world(ctx: RankContext, subject: SubjectRef, cases: Sequence[Case]) -> Packed:
    """All cases over the default group."""
    made = subject.make("collectives")
    return pack(run_cases(ctx, made, cases, ctx.group, ctx.world_size, ctx.rank))


def over_groups(
    ctx: RankContext, subject: SubjectRef, cases: Sequence[Case], groups: Sequence[Sequence[int]]
) -> Packed:
    """All cases over groups that may be disjoint: every rank works in the last group it belongs to, at once.

    A rank outside all of them calls with the group it is not in.
    """
    made = subject.make("collectives")
    handles = [dist.new_group(list(members)) for members in groups]
    mine = next((k for k, members in enumerate(groups) if ctx.rank in members), 0)
    members = list(groups[mine])
    me = members.index(ctx.rank) if ctx.rank in members else -1
    return pack(run_cases(ctx, made, cases, handles[mine], len(members), me))


def large_half(ctx: RankContext, subject: SubjectRef, name: str) -> tuple[int, int, Packed]:
    """A large float16 sum of an odd number of elements, some of which overflow.

    Returns (how many elements differ, bit for bit, from those a period before; the first of them or −1; one period).
    """
    subject.require("collectives.all_reduce.sum.float16.contiguous")
    count, period = LARGE_HALF[name]
    x = workload.large_half(ctx.rank, name).repeat(-(-count // period))[:count].contiguous().to(ctx.device)
    subject.make("collectives").all_reduce(x, "sum", ctx.group)
    seen = x.view(torch.int16)
    odd = (seen[period:] != seen[:-period]).nonzero() if period < count else seen[:0]
    return odd.numel(), int(odd[0]) + period if odd.numel() else -1, pack([x[:period]])
