"""Rank programs: asynchronous, functional and differentiated collectives, messages, objects."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from parproof.errors import UsageError
from parproof.oracles import collective_forms as oracle
from parproof.programs.collectives import Laid, call
from parproof.programs.packing import Packed, pack
from parproof.ranks.context import RankContext
from parproof.subjects.collectives_protocol import Collectives, FunctionalCollectives
from parproof.subjects.protocol import SubjectRef
from parproof.workloads.collective_cases import Case, buffers
from parproof.workloads.collective_forms import ROOT, TARGETS, Form, rows_from, rows_to
from parproof.workloads.collectives import laid_out


def group_of(ctx: RankContext, members: Sequence[int]) -> tuple[Any, int]:
    """(group, this rank's place in it or −1); the default group if everybody is in."""
    if len(members) == ctx.world_size:
        return ctx.group, ctx.rank
    group = dist.new_group(list(members))
    return group, (list(members).index(ctx.rank) if ctx.rank in members else -1)


def held_back(
    ctx: RankContext, subject: SubjectRef, cases: Sequence[Case], token: str
) -> tuple[list[bool], Packed]:
    """Start each case while the last rank has not joined; it joins when all others have looked.

    Returns (whether this rank's handle called itself complete at that moment, the buffers after `wait`).
    """
    made, late = subject.make("collectives"), ctx.world_size - 1
    store = dist.distributed_c10d._get_default_store()
    early, found = [], []
    for number, case in enumerate(cases):
        laid = Laid(ctx, case, buffers(case, ctx.world_size, ctx.rank))
        keys = [f"{token}/{number}/{rank}" for rank in range(late)]
        if ctx.rank == late:
            store.wait(keys)
        with ctx.phase(f"case{number}"):
            handle = started(made, laid, ctx)
            early.append(handle.is_completed())
            if ctx.rank != late:
                store.set(keys[ctx.rank], "looked")
            handle.wait()
        found += laid.after()
    return early, pack(found)


def started(made: Collectives, laid: Laid, ctx: RankContext) -> Any:
    """The handle of a call that was asked to be asynchronous."""
    handle = call(made, laid, ctx.group, ctx.world_size, ctx.rank, async_op=True)
    if handle is None:
        raise UsageError(
            f"{laid.case.op} with async_op=True returned None",
            expected="a handle with wait and is_completed",
            next_step=f"return one, or say in `lacks` that «{laid.case.capability}.async» is not provided",
        )
    return handle


def barrier(ctx: RankContext, subject: SubjectRef, token: str) -> bool:
    """The last rank leaves a note before it enters; returns whether the note was there on leaving."""
    subject.require("collectives.barrier")
    store = dist.distributed_c10d._get_default_store()
    if ctx.rank == ctx.world_size - 1:
        time.sleep(0.05)  # time enough to leave too early
        store.set(token, "here")
    subject.make("collectives").barrier(ctx.group)
    return bool(store.check([token]))


def all_in_flight(ctx: RankContext, subject: SubjectRef, cases: Sequence[Case]) -> Packed:
    """Start all cases, then wait: odd ranks in the order of the start, even ones in the opposite order."""
    made = subject.make("collectives")
    laid = [Laid(ctx, case, buffers(case, ctx.world_size, ctx.rank)) for case in cases]
    handles = [started(made, one, ctx) for one in laid]
    for handle in handles if ctx.rank % 2 else reversed(handles):
        handle.wait()
    return pack([x for one in laid for x in one.after()])


def apply(made: FunctionalCollectives, form: Form, xs: list[Tensor], group: Any, me: int) -> list[Tensor]:
    """Make the functional call that the form names."""
    match form.op:
        case "all_reduce":
            return [made.all_reduce(xs[0], str(form.reduce_op), group)]
        case "all_gather":
            return [made.all_gather(xs[0], form.dim, group)]
        case "reduce_scatter":
            return [made.reduce_scatter(xs[0], str(form.reduce_op), form.dim, group)]
        case "all_to_all":
            return [made.all_to_all(xs[0], rows_from(me), rows_to(me), group)]
        case "broadcast":
            return [made.broadcast(xs[0], ROOT, group)]
        case "permute":
            return [made.permute(xs[0], list(TARGETS), group)]
        case "all_reduce_coalesced":
            return made.all_reduce_coalesced(xs, str(form.reduce_op), group)
        case "all_gather_coalesced":
            return made.all_gather_coalesced(xs, group)
    return made.reduce_scatter_coalesced(xs, str(form.reduce_op), group)


def functional(
    ctx: RankContext,
    subject: SubjectRef,
    forms: Sequence[tuple[Form, str, str]],
    members: Sequence[int],
    gradient: bool,
) -> Packed | None:
    """For each (form, dtype, layout): the outputs, the inputs afterwards, and the input gradients if asked for."""
    made = subject.make("functional_collectives")
    group, me = group_of(ctx, members)
    if me < 0:
        return None
    found: list[Tensor] = []
    for number, (form, dtype, layout) in enumerate(forms):
        given = [laid_out(x.to(ctx.device), layout)[0] for x in oracle.inputs(form, dtype, ctx.rank, me)]
        xs = [x.requires_grad_() for x in given] if gradient else given
        with ctx.phase(f"case{number}"):
            with ctx.phase("forward"):
                ys = apply(made, form, xs, group, me)
            found += [*ys, *xs]
            if gradient:
                found += _gradients(ctx, form, dtype, layout, xs, ys)
    return pack(found)


def _gradients(
    ctx: RankContext, form: Form, dtype: str, layout: str, xs: list[Tensor], ys: list[Tensor]
) -> list[Tensor]:
    behind = oracle.incoming(form, dtype, ctx.rank, [tuple(y.shape) for y in ys])
    strided = [laid_out(g.to(ctx.device), layout)[0] for g in behind]
    with ctx.phase("backward"):
        got = torch.autograd.grad(ys, xs, strided, allow_unused=True)
    # A gradient that is missing is not a gradient of zero; NaN equals nothing.
    return [torch.full_like(x, torch.nan) if g is None else g for g, x in zip(got, xs, strict=True)]
