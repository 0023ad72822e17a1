"""Rank programs: asynchronous, functional and differentiated collectives, messages, objects."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from parproof.workloads.collective_forms import ROOT, Form, FormCase, rows_from, rows_to, takes, targets
from parproof.workloads.collectives import laid_out


@dataclass(frozen=True)
class Own:
    """A rank's own group: its number among those that work at once, and the rank's place in it (−1: in none)."""

    group: Any
    turn: int
    p: int
    me: int


def own_group(ctx: RankContext, groups: Sequence[Sequence[int]]) -> Own:
    """The group of this rank, or the first one if it is in none; the default group if everybody is in."""
    if len(groups[0]) == ctx.world_size:
        return Own(ctx.group, 0, ctx.world_size, ctx.rank)
    handles = [dist.new_group(list(members)) for members in groups]
    turn = next((k for k, members in enumerate(groups) if ctx.rank in members), 0)
    members = list(groups[turn])
    me = members.index(ctx.rank) if ctx.rank in members else -1
    return Own(handles[turn], turn, len(members), me)


class Held:
    """The last rank of a group joins an operation when all others have looked at their handles."""

    def __init__(self, own: Own) -> None:
        self._own = own
        self._store = dist.distributed_c10d._get_default_store()

    def run(self, number: int, start: Callable[[], Any]) -> tuple[bool, bool]:
        """Start, look, wait, look. Returns whether the handle called itself complete: before `wait`, and after it."""
        late = self._own.p - 1
        keys = [f"held/{self._own.turn}/{number}/{rank}" for rank in range(late)]
        if self._own.me == late:
            self._store.wait(keys)
        handle = start()
        early = bool(handle.is_completed())
        if self._own.me != late:
            self._store.set(keys[self._own.me], "looked")
        handle.wait()
        return early, bool(handle.is_completed())


def held_back(
    ctx: RankContext, subject: SubjectRef, cases: Sequence[Case], groups: Sequence[Sequence[int]]
) -> tuple[list[tuple[bool, bool]], Packed]:
    """Start each case while the last rank of the group has not joined. A rank outside calls, and has nothing to wait for.

    Returns (whether this rank's handle called itself complete at that moment, and after `wait`; the buffers then).
    """
    made, own = subject.make("collectives"), own_group(ctx, groups)
    held = Held(own)
    flags, found = [], []
    for number, case in enumerate(cases):
        laid = Laid(ctx, case, buffers(case, own.p, max(own.me, 0)))
        with ctx.phase(f"case{number}"):
            if own.me < 0:
                call(made, laid, own.group, own.p, own.me, async_op=True)
            else:
                flags.append(held.run(number, functools.partial(started, made, laid, own)))
        found += laid.after()
    return flags, pack(found)


def started(made: Collectives, laid: Laid, own: Own) -> Any:
    """The handle of a call that was asked to be asynchronous."""
    handle = call(made, laid, own.group, own.p, own.me, async_op=True)
    return require_handle(handle, laid.case.op, laid.case.capability)


def require_handle(handle: Any, op: str, capability: str) -> Any:
    """What was started has to be waited for."""
    if handle is None:
        raise UsageError(
            f"{op} with async_op=True returned None",
            expected="a handle with wait and is_completed",
            next_step=f"return one, or say in `lacks` that «{capability}.async» is not provided",
        )
    return handle


def barrier(ctx: RankContext, subject: SubjectRef, groups: Sequence[Sequence[int]]) -> bool:
    """The last rank of a group leaves a note before it enters; the next group enters when the one before has left.

    Returns whether the note was there on leaving. A rank outside calls, and has to come back at once: the first
    group waits for it. A barrier that waits for ranks that are not in it never ends.
    """
    subject.require("collectives.barrier")
    made, own = subject.make("collectives"), own_group(ctx, groups)
    store = dist.distributed_c10d._get_default_store()
    if own.me < 0:
        made.barrier(own.group)
        store.set(f"outside/{ctx.rank}", "back")
        return True
    before = [f"left/{own.turn - 1}"] if own.turn else []
    if own.me == own.p - 1:
        members = {rank for group in groups for rank in group}
        before += [f"outside/{rank}" for rank in range(ctx.world_size) if rank not in members]
    if before:
        _until_ranks_elsewhere_are_back(store, before)
    if own.me != own.p - 1:
        store.set(f"at the door/{own.turn}/{own.me}", "there")
    else:
        # A rank that was slow to come would be slow to leave too, and nothing would be seen of it.
        store.wait([f"at the door/{own.turn}/{me}" for me in range(own.p - 1)])
        time.sleep(0.03)  # time enough to leave too early
        store.set(f"here/{own.turn}", "here")
    made.barrier(own.group)
    seen = bool(store.check([f"here/{own.turn}"]))
    if own.me == 0:
        store.set(f"left/{own.turn}", "left")
    return seen


def _until_ranks_elsewhere_are_back(store: Any, notes: list[str]) -> None:
    """Wait for what a right barrier lets happen at once, for as long as the run may take: a stack in here tells the cause."""
    store.wait(notes)


def all_in_flight(ctx: RankContext, subject: SubjectRef, cases: Sequence[Case]) -> Packed:
    """Start all cases, then wait: odd ranks in the order of the start, even ones in the opposite order."""
    made = subject.make("collectives")
    laid = [Laid(ctx, case, buffers(case, ctx.world_size, ctx.rank)) for case in cases]
    own = Own(ctx.group, 0, ctx.world_size, ctx.rank)
    handles = [started(made, one, own) for one in laid]
    for handle in handles if ctx.rank % 2 else reversed(handles):
        handle.wait()
    return pack([x for one in laid for x in one.after()])


def apply(made: FunctionalCollectives, form: Form, xs: list[Tensor], own: Own) -> list[Tensor]:
    """Make the functional call that the form names."""
    group, p, me = own.group, own.p, own.me
    match form.op:
        case "all_reduce":
            return [made.all_reduce(xs[0], str(form.reduce_op), group)]
        case "all_gather":
            return [made.all_gather(xs[0], form.dim, group)]
        case "reduce_scatter":
            return [made.reduce_scatter(xs[0], str(form.reduce_op), form.dim, group)]
        case "reduce" | "gather" | "scatter" | "all_gather_single" | "all_to_all_list":
            return [_autograd_alone(made, form, xs[0], own)]
        case "all_to_all":
            return [made.all_to_all(xs[0], rows_from(p, me), rows_to(p, me), group)]
        case "broadcast":
            return [made.broadcast(xs[0], ROOT, group)]
        case "permute":
            return [made.permute(xs[0], list(targets(p)), group)]
        case "all_reduce_coalesced":
            return made.all_reduce_coalesced(xs, str(form.reduce_op), group)
        case "all_gather_coalesced":
            return made.all_gather_coalesced(xs, group)
    return made.reduce_scatter_coalesced(xs, str(form.reduce_op), group)


def _autograd_alone(made: Any, form: Form, x: Tensor, own: Own) -> Tensor:
    """The forms that only autograd_collectives have."""
    found: Tensor
    match form.op:
        case "reduce":
            found = made.reduce(x, str(form.reduce_op), ROOT, own.group)
        case "all_to_all_list":
            found = torch.cat(made.all_to_all_list(list(x.tensor_split(own.p)), own.group))
        case "all_gather_single":
            found = made.all_gather_single(x, own.group)
        case _:
            found = getattr(made, form.op)(x, ROOT, own.group)
    return found


def functional(
    ctx: RankContext, subject: SubjectRef, cases: Sequence[FormCase], groups: Sequence[Sequence[int]]
) -> Packed | None:
    """For each case of one mechanism: the outputs, the inputs afterwards, and the input gradients if asked for."""
    made, own = subject.make(cases[0].mechanism), own_group(ctx, groups)
    if own.me < 0:
        return None
    found: list[Tensor] = []
    for number, case in enumerate(cases):
        given = oracle.inputs(case, own.p, ctx.rank, own.me)
        xs = [laid_out(x.to(ctx.device), case.layout)[0].requires_grad_(case.gradient) for x in given]
        with ctx.phase(f"case{number}"):
            with ctx.phase("forward"):
                ys = apply(made, case.form, xs, own)
            found += [*(ys if takes(case.form, own.me) else []), *xs]
            if case.gradient:
                found += _gradients(ctx, case, xs, ys)
    return pack(found)


def _gradients(ctx: RankContext, case: FormCase, xs: list[Tensor], ys: list[Tensor]) -> list[Tensor]:
    behind = oracle.incoming(case, ctx.rank, [tuple(y.shape) for y in ys])
    strided = [laid_out(g.to(ctx.device), case.layout)[0] for g in behind]
    with ctx.phase("backward"):
        got = torch.autograd.grad(ys, xs, strided, allow_unused=True)
    # A gradient that is missing is not a gradient of zero; NaN equals nothing.
    return [torch.full_like(x, torch.nan) if g is None else g for g, x in zip(got, xs, strict=True)]
