"""Rank programs of the tensor-parallel experiment: build, run, give back pieces; judge nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from parproof.errors import InvalidPlan
from parproof.ranks.context import RankContext
from parproof.subjects.protocol import SubjectRef
from parproof.subjects.tensor_protocol import Index, Piece, Pieces, SplitLayer, TensorParallel
from parproof.workloads.tensor import Case, of_group

NamedPieces = dict[str, list[Piece]]


@dataclass
class Outcome:
    """One rank's side of one case; `refused` holds the text of an InvalidPlan and nothing else is set then."""

    refused: str | None = None
    output: Piece | None = None
    input_gradient: Piece | None = None
    parameters: NamedPieces = field(default_factory=dict)
    gradients: NamedPieces = field(default_factory=dict)
    gradient_norm: float | None = None
    resident_bytes: int = 0


def layers(
    ctx: RankContext, subject: SubjectRef, cases: Sequence[Case], num_groups: int = 1, norm: bool = False
) -> list[Outcome]:
    """Forward and backward of each case, over the world or over `num_groups` interleaved groups at once.

    Each group has values of its own (workloads.tensor.of_group), so that none can do the work of another.
    """
    if norm:
        subject.require("tensor.gradient_norm")
    implementation: TensorParallel = subject.make("tensor")
    group = interleaved(ctx, num_groups)
    cases = [of_group(case, ctx.rank % num_groups) for case in cases]
    return [guarded(partial(_layer, ctx, implementation, case, group, norm)) for case in cases]


def norm_of_two_groups(ctx: RankContext, subject: SubjectRef, over_all: Case, over_some: Case) -> Outcome:
    """The norm of a layer split over all ranks together with one that interleaved pairs split."""
    for capability in ("tensor.mlp", "tensor.gradient_norm"):
        subject.require(capability)
    implementation: TensorParallel = subject.make("tensor")
    made = []
    for case, group in ((over_all, ctx.group), (over_some, interleaved(ctx, 2))):
        layer = build(implementation, case, group, ctx.device)
        output = layer(layer.take(on(ctx, case.input())).local)
        torch.autograd.backward(output.local, upstream_of(case.upstream(), output))
        made.append(layer)
    return guarded(lambda: Outcome(gradient_norm=implementation.gradient_norm(made)))


def interleaved(ctx: RankContext, num_groups: int) -> ProcessGroup:
    """This rank's group: ranks number, number + num_groups, …"""
    if num_groups == 1:
        return ctx.group
    lines = [list(range(number, ctx.world_size, num_groups)) for number in range(num_groups)]
    made = [dist.new_group(line) for line in lines]
    mine: Any = made[ctx.rank % num_groups]
    return mine  # type: ignore[no-any-return]


def guarded(run: Callable[[], Outcome]) -> Outcome:
    """The outcome, or the text of the refusal."""
    try:
        return run()
    except InvalidPlan as refusal:
        return Outcome(refused=str(refusal))


def build(subject: TensorParallel, case: Case, group: ProcessGroup, device: torch.device) -> SplitLayer:
    """The subject's layer for a case."""
    if case.kind == "loss":
        return subject.vocabulary_loss(group=group, **case.options)
    # By name: a subject of one kind of layer has no other method.
    method = {"column": "column_linear", "row": "row_linear", "sequence": "sequence_block"}
    params = {name: value.to(device) for name, value in case.params().items()}
    made: SplitLayer = getattr(subject, method.get(case.kind, case.kind))(params, group=group, **case.options)
    return made


def _layer(ctx: RankContext, subject: TensorParallel, case: Case, group: ProcessGroup, norm: bool) -> Outcome:
    with ctx.phase("setup"):
        layer = build(subject, case, group, ctx.device)
        taken = layer.take(on(ctx, case.input()))
        x = taken.local.detach()
        if x.is_floating_point():
            x.requires_grad_()
    with ctx.phase(case.name):
        with ctx.phase("forward"):
            output = layer(x, *(on(ctx, extra) for extra in case.extra()))
        with ctx.phase("backward"):
            upstream = upstream_of(case.upstream(), output)
            torch.autograd.backward(output.local, upstream)
            gradients = layer.gradients()
    with ctx.phase("norm"):
        total = subject.gradient_norm([layer]) if norm else None
    parameters = layer.parameters()
    grad = None if x.grad is None else Piece(x.grad, taken.index)
    return Outcome(
        output=plain(output),
        input_gradient=grad and plain(grad),
        parameters=_plain_all(parameters),
        resident_bytes=storage_bytes(parameters),
        gradients=_plain_all(gradients),
        gradient_norm=total,
    )


def storage_bytes(pieces: Pieces) -> int:
    """Bytes that the pieces keep alive: a view into a whole weight keeps all of it."""
    storages = [piece.local.untyped_storage() for several in pieces.values() for piece in several]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def on(ctx: RankContext, whole: Tensor) -> Tensor:
    """The tensor on the rank's device, laid out in memory as it was."""
    return whole.to(ctx.device)


def upstream_of(whole: Tensor, piece: Piece) -> Tensor:
    """The piece's part of the upstream gradient. An output of a wrong shape gets zeros: its judge will see it."""
    mine = cut(whole, piece.index).to(piece.local.device)
    return mine if mine.shape == piece.local.shape else torch.zeros_like(piece.local)


def cut(whole: Tensor, index: Index) -> Tensor:
    """The part of a whole tensor at an index."""
    return whole[tuple(slice(a, b) for a, b in index)]


def plain(piece: Piece) -> Piece:
    """Without a graph, in memory of its own."""
    return Piece(piece.local.detach().cpu().clone(), tuple((int(a), int(b)) for a, b in piece.index))


def _plain_all(pieces: Any) -> NamedPieces:
    return {name: [plain(piece) for piece in several] for name, several in pieces.items()}


def plans(ctx: RankContext, subject: SubjectRef, asked: Sequence[tuple[int, int, int]]) -> list[Any]:
    """The subject's head plan for each (q heads, kv heads, ranks), or the text of its refusal."""
    implementation: TensorParallel = subject.make("tensor")
    found: list[Any] = []
    for q_heads, kv_heads, ranks in asked:
        try:
            found.append(implementation.plan_attention(q_heads, kv_heads, ranks))
        except InvalidPlan as refusal:
            found.append(str(refusal))
    return found
