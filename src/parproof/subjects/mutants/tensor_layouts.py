"""Mutants of PAR-TENSOR-LAYOUT: layouts, operations on split tensors and the gradient norm, with one lie each."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from parproof.errors import InvalidPlan
from parproof.subjects.protocol import Subject
from parproof.subjects.reference.tensor import TensorParallel
from parproof.subjects.reference.tensor_layers import Layer, whole_index, with_range
from parproof.subjects.reference.tensor_layout import index_at
from parproof.subjects.reference.tensor_wire import Regions, crossing, same
from parproof.subjects.tensor_protocol import Layout, Piece

KINDS = types.SimpleNamespace()


def _mutant(name: str, **lies: Any) -> Subject:
    setattr(KINDS, name, type(name, (TensorParallel,), lies))
    return Subject(name=name, mechanisms={"tensor": f"{__name__}:KINDS.{name}"})


def _as_if_flat(
    self: Any, piece: Piece, shape: tuple[int, ...], source: Layout, target: Layout, *, group: Any
) -> Piece:
    twice = len(source.mesh) == 2 and source.placements[0] == source.placements[1] != "R"
    if not twice:
        return TensorParallel.redistribute(self, piece, shape, source, target, group=group)
    wire, dim = Regions(group), int(source.placements[0][1:])
    lengths = [stop - start for start, stop in wire.bounds(shape[dim])]
    longest = max(lengths)
    local = functional.pad(piece.local, [0, 0] * (1 - dim) + [0, longest - piece.local.shape[dim]])
    even = [(rank * longest, (rank + 1) * longest) for rank in range(wire.size)]
    gathered = wire.gather_parts(local, dim, even)
    kept = [gathered.narrow(dim, start, n) for (start, _), n in zip(even, lengths, strict=True)]
    return Piece(torch.cat(kept, dim), whole_index(shape))


def _keeps_the_whole(
    self: Any, piece: Piece, shape: tuple[int, ...], source: Layout, target: Layout, *, group: Any
) -> Piece:
    common = Layout(source.mesh, tuple("R" for _ in source.mesh), source.flattened)
    return TensorParallel.redistribute(self, piece, shape, source, common, group=group)


def _sums_then_cuts(
    self: Any, piece: Piece, shape: tuple[int, ...], source: Layout, target: Layout, *, group: Any
) -> Piece:
    if source.placements != ("P",) or target.placements == ("R",):
        return TensorParallel.redistribute(self, piece, shape, source, target, group=group)
    common = Layout(source.mesh, ("R",))
    whole = TensorParallel.redistribute(self, piece, shape, source, common, group=group)
    return TensorParallel.redistribute(self, whole, shape, common, target, group=group)


def _shards_nothing(self: Any, whole: Tensor, layout: Layout, *, group: Any) -> Piece:
    return Piece(whole.clone(), whole_index(whole.shape))


def _moves_nothing(
    self: Any, piece: Piece, shape: tuple[int, ...], source: Layout, target: Layout, *, group: Any
) -> Piece:
    if "P" in source.placements:
        return TensorParallel.redistribute(self, piece, shape, source, target, group=group)
    return Piece(piece.local.view_as(piece.local), piece.index)


def _summed_gradient(self: Any, piece: Piece, shape: tuple[int, ...], layout: Layout, *, group: Any) -> Piece:
    if "P" not in layout.placements:
        return TensorParallel.hand_over(self, piece, shape, layout, group=group)
    return Piece(crossing(piece.local, same, Regions(group).sum), piece.index)


def _as_many_as_here(
    self: Any, local: Tensor, shape: tuple[int, ...] | None, layout: Layout, *, group: Any
) -> Tensor:
    whole = TensorParallel.join(self, local, shape, layout, group=group)
    if shape is not None:
        return whole
    dim = int(layout.placements[0][1:])
    length = local.shape[dim] * dist.get_world_size(group)
    missing = max(0, length - whole.shape[dim])
    return functional.pad(whole, [0, 0] * (1 - dim) + [0, missing]).narrow(dim, 0, length)


def _thin_axes_left_alone(self: Any, mesh: tuple[int, ...], axes: tuple[int, ...], *, group: Any) -> Any:
    if all(mesh[axis] == 1 for axis in axes):
        return group
    return TensorParallel.flatten(self, mesh, axes, group=group)


def _mean_of_means(
    self: Any, piece: Piece, shape: tuple[int, ...], layout: Layout, name: str, *, group: Any
) -> Tensor:
    if name != "mean":
        return TensorParallel.statistic(self, piece, shape, layout, name, group=group)
    wire = Regions(group)
    return wire.sum(piece.local.mean()) / wire.size


def _view_of_the_part(
    self: Any, piece: Piece, shape: tuple[int, ...], layout: Layout, new_shape: tuple[int, ...], *, group: Any
) -> Piece:
    wire = Regions(group)
    if new_shape[0] % wire.size or piece.local.numel() * wire.size != torch.Size(shape).numel():
        raise InvalidPlan("parts are not equal")
    bounds = wire.bounds(new_shape[0])[wire.rank]
    local = piece.local.reshape(new_shape[0] // wire.size, *new_shape[1:])
    return Piece(local, with_range(whole_index(new_shape), 0, bounds))


def _write_to_a_copy(self: Any, piece: Piece, *arguments: Any, **keywords: Any) -> Piece:
    TensorParallel.fill(self, piece, *arguments, **keywords)
    return piece


def _one_seed_for_all(
    self: Any, shape: tuple[int, ...], layout: Layout, *, kind: str, seed: int, group: Any
) -> Piece:
    index = index_at(shape, layout, (dist.get_rank(group),))
    mine = tuple(b - a for a, b in index)
    common = Layout(layout.mesh, ("R",))
    drawn = TensorParallel.random(self, mine, common, kind=kind, seed=seed, group=group)
    return Piece(drawn.local, index)


def _whole_wherever(
    self: Any, shape: tuple[int, ...], layout: Layout, *, kind: str, seed: int, group: Any
) -> Piece:
    common = Layout(layout.mesh, ("R",))
    return TensorParallel.random(self, shape, common, kind=kind, seed=seed, group=group)


def _one_seed_for_ever(
    self: Any, shape: tuple[int, ...], layout: Layout, *, kind: str, seed: int, group: Any
) -> Piece:
    return TensorParallel.random(self, shape, layout, kind=kind, seed=42, group=group)


def _norm_with_copies(self: Any, layers: Sequence[Layer]) -> float:
    for layer in layers:
        for held in layer.held.values():
            held.replicas = 1
    return TensorParallel.gradient_norm(self, layers)


def _norm_of_this_rank(self: Any, layers: Sequence[Layer]) -> float:
    grads = [held.leaf.grad for layer in layers for held in layer.held.values() if held.leaf.grad is not None]
    return float(torch.stack([g.double().square().sum() for g in grads]).sum().sqrt())


class _OtherPairs(Regions):
    """Of four ranks in pairs 0, 2 and 1, 3: pairs 0, 3 and 1, 2, in which each rank has the place it had."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        if group.size() < dist.get_world_size() == 4:
            group = dist.new_subgroups_by_enumeration([[0, 3], [1, 2]])[0]
        super().__init__(group)


grid_taken_for_a_line = _mutant("grid_taken_for_a_line", redistribute=_as_if_flat)
summed_gradient_of_a_summand = _mutant("summed_gradient_of_a_summand", hand_over=_summed_gradient)
parts_as_long_as_ours = _mutant("parts_as_long_as_ours", join=_as_many_as_here)
thin_axes_left_alone = _mutant("thin_axes_left_alone", flatten=_thin_axes_left_alone)
mean_of_means = _mutant("mean_of_means", statistic=_mean_of_means)
views_the_part = _mutant("views_the_part", view=_view_of_the_part)
writes_to_a_copy = _mutant("writes_to_a_copy", fill=_write_to_a_copy)
one_seed_for_all_parts = _mutant("one_seed_for_all_parts", random=_one_seed_for_all)
target_is_ignored = _mutant("target_is_ignored", redistribute=_keeps_the_whole)
sums_then_cuts = _mutant("sums_then_cuts", redistribute=_sums_then_cuts)
shards_nothing = _mutant("shards_nothing", shard=_shards_nothing, redistribute=_moves_nothing)
random_is_never_split = _mutant("random_is_never_split", random=_whole_wherever)
seed_is_ignored = _mutant("seed_is_ignored", random=_one_seed_for_ever)
norm_counts_copies = _mutant("norm_counts_copies", gradient_norm=_norm_with_copies)
norm_of_one_rank = _mutant("norm_of_one_rank", gradient_norm=_norm_of_this_rank)
works_with_the_other_pair = _mutant("works_with_the_other_pair", wire_type=_OtherPairs)
