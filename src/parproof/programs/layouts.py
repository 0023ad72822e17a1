"""Rank programs of the tensor-parallel experiment about layouts: tensors moved, joined, viewed, written to and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from parproof.programs.tensor import Outcome, cut, guarded, on, plain, upstream_of
from parproof.ranks.context import RankContext
from parproof.subjects.protocol import SubjectRef
from parproof.subjects.tensor_protocol import Layout, Piece, TensorParallel
from parproof.workloads import layouts as cases_of


def moves(ctx: RankContext, subject: SubjectRef, cases: Sequence[cases_of.Move]) -> list[Outcome]:
    """Each tensor from one layout to another, and the gradient back."""
    subject.require("tensor.redistribute")
    if any(move.handed_over for move in cases):
        subject.require("tensor.hand_over")
    implementation: TensorParallel = subject.make("tensor")
    return [guarded(partial(_redistribute, ctx, implementation, move)) for move in cases]


def _redistribute(ctx: RankContext, subject: TensorParallel, move: cases_of.Move) -> Outcome:
    with ctx.phase("setup"):
        piece = _start(ctx, subject, move)
    x = piece.local.detach().requires_grad_()
    with ctx.phase(f"{move.name}/forward"):
        given = Piece(x, piece.index)
        if move.handed_over:
            given = subject.hand_over(given, move.shape, move.source, group=ctx.group)
        output = subject.redistribute(given, move.shape, move.source, move.target, group=ctx.group)
    with ctx.phase(f"{move.name}/backward"):
        torch.autograd.backward(output.local, upstream_of(move.upstream(), output))
    assert x.grad is not None
    return Outcome(output=plain(output), input_gradient=plain(Piece(x.grad, piece.index)))


def _start(ctx: RankContext, subject: TensorParallel, move: cases_of.Move) -> Piece:
    """What this rank holds at first: of a summand all of it, or the part that the other axes of the mesh give."""
    placements = move.source.placements
    if "P" not in placements:
        return subject.shard(on(ctx, move.whole()), move.source, group=ctx.group)
    summand = on(ctx, move.summand(ctx.rank))
    if not any(placement.startswith("S") for placement in placements):
        return Piece(summand, tuple((0, n) for n in move.shape))  # as it lies in memory
    split = tuple("R" if placement == "P" else placement for placement in placements)
    part = subject.shard(on(ctx, move.whole()), Layout(move.source.mesh, split), group=ctx.group)
    return Piece(cut(summand, part.index).clone(), part.index)


def joins(ctx: RankContext, subject: SubjectRef, cases: Sequence[cases_of.Join]) -> list[Outcome]:
    """The whole of each tensor from its parts, and the gradient of each part."""
    subject.require("tensor.join")
    implementation: TensorParallel = subject.make("tensor")

    def one(case: cases_of.Join) -> Outcome:
        whole, layout = on(ctx, case.whole()), cases_of.line(ctx.world_size, f"S{case.dim}")
        if case.cuts:
            piece = Piece(cut(whole, case.index(ctx.rank)).clone(), case.index(ctx.rank))
        else:
            piece = implementation.shard(whole, layout, group=ctx.group)
        x = piece.local.detach().requires_grad_()
        joined = implementation.join(x, case.shape if case.told else None, layout, group=ctx.group)
        output = Piece(joined, tuple((0, n) for n in case.shape))
        if not torch.equal(joined.detach(), whole):
            return Outcome(
                output=plain(output)
            )  # its judge will see it; a gradient of it may not even be computed
        torch.autograd.backward(joined, upstream_of(case.upstream(), output))
        assert x.grad is not None
        return Outcome(output=plain(output), input_gradient=plain(Piece(x.grad, piece.index)))

    return [guarded(partial(one, case)) for case in cases]


def flattened(
    ctx: RankContext, subject: SubjectRef, cases: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
) -> list[list[int]]:
    """Who answers when the ranks of some axes of a mesh, taken as one, gather their numbers."""
    subject.require("tensor.flatten")
    implementation: TensorParallel = subject.make("tensor")
    found = []
    for mesh, axes in cases:
        line = implementation.flatten(mesh, axes, group=ctx.group)
        mine = torch.tensor([ctx.rank], device=ctx.device)
        parts = [torch.empty_like(mine) for _ in range(dist.get_world_size(line))]
        dist.all_gather(parts, mine, group=line)
        found.append([int(part) for part in parts])
    return found


def statistics(
    ctx: RankContext,
    subject: SubjectRef,
    shape: tuple[int, ...],
    layouts: Sequence[Layout],
    names: Sequence[str],
) -> list[dict[str, Tensor]]:
    """Every statistic of one tensor in every layout."""
    subject.require("tensor.statistic")
    implementation: TensorParallel = subject.make("tensor")
    whole = on(ctx, cases_of.coded(shape).double())
    found = []
    for layout in layouts:
        piece = implementation.shard(whole, layout, group=ctx.group)
        found.append(
            {
                name: implementation.statistic(piece, shape, layout, name, group=ctx.group)
                .detach()
                .cpu()
                .clone()
                for name in names
            }
        )
    return found


def views(ctx: RankContext, subject: SubjectRef, cases: Sequence[cases_of.View]) -> list[Outcome]:
    """Each sharded tensor viewed in another shape."""
    subject.require("tensor.view")
    implementation: TensorParallel = subject.make("tensor")

    def one(case: cases_of.View) -> Outcome:
        piece = implementation.shard(on(ctx, cases_of.coded(case.shape)), case.layout, group=ctx.group)
        viewed = implementation.view(piece, case.shape, case.layout, case.new_shape, group=ctx.group)
        return Outcome(output=plain(viewed))

    return [guarded(partial(one, case)) for case in cases]


def fills(ctx: RankContext, subject: SubjectRef, cases: Sequence[cases_of.Fill]) -> list[Outcome]:
    """A slice of each sharded tensor overwritten."""
    subject.require("tensor.fill")
    implementation: TensorParallel = subject.make("tensor")

    def one(case: cases_of.Fill) -> Outcome:
        piece = implementation.shard(on(ctx, cases_of.coded(case.shape)), case.layout, group=ctx.group)
        filled = implementation.fill(piece, case.shape, case.layout, case.where, case.value, group=ctx.group)
        return Outcome(output=plain(filled))

    return [guarded(partial(one, case)) for case in cases]


def operations(
    ctx: RankContext, subject: SubjectRef, cases: Sequence[cases_of.View | cases_of.Fill]
) -> list[Outcome]:
    """Views or fills, as the cases are of one kind or the other."""
    if isinstance(cases[0], cases_of.View):
        return views(ctx, subject, [case for case in cases if isinstance(case, cases_of.View)])
    return fills(ctx, subject, [case for case in cases if isinstance(case, cases_of.Fill)])


def random_tensors(
    ctx: RankContext,
    subject: SubjectRef,
    shape: tuple[int, ...],
    layouts: Sequence[Layout],
    kind: str,
    seed: int,
) -> list[Outcome]:
    """The same random tensor asked for in several layouts; then, in the first of them, that of the next seed."""
    subject.require(f"tensor.random.{kind}")
    implementation: TensorParallel = subject.make("tensor")

    def one(layout: Layout, number: int) -> Outcome:
        drawn = implementation.random(shape, layout, kind=kind, seed=number, group=ctx.group)
        return Outcome(output=plain(drawn))

    wanted = [(layout, seed) for layout in layouts] + [(layouts[0], seed + 1)]
    return [guarded(partial(one, *each)) for each in wanted]
