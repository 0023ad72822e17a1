"""Layouts of tensors over a mesh of ranks, and operations on the parts that mean what they mean on the whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from parproof.errors import InvalidPlan
from parproof.subjects.reference.tensor_layers import whole_index
from parproof.subjects.reference.tensor_wire import Regions, part
from parproof.subjects.tensor_protocol import Index, Layout, Piece


class Mesh:
    """The ranks of a group as a grid, last axis fastest, with one group for each line through this rank."""

    def __init__(self, shape: tuple[int, ...], group: ProcessGroup, kind: type[Regions] = Regions) -> None:
        if math.prod(shape) != dist.get_world_size(group):
            raise InvalidPlan(f"mesh {shape} over {dist.get_world_size(group)} ranks", expected="as many")
        self.shape = shape
        self.position = _position(dist.get_rank(group), shape)
        self.lines = [self._line(axis, group, kind) for axis in range(len(shape))]

    def _line(self, axis: int, group: ProcessGroup, kind: type[Regions]) -> Regions | None:
        if self.shape[axis] == 1:
            return None
        members = dist.get_process_group_ranks(group)
        if self.shape[axis] == len(members):
            return kind(group)
        strides = [math.prod(self.shape[i + 1 :]) for i in range(len(self.shape))]
        base = sum(p * s for p, s in zip(self.position, strides, strict=True)) - (
            self.position[axis] * strides[axis]
        )
        mine = [members[base + i * strides[axis]] for i in range(self.shape[axis])]
        return kind(dist.new_group(mine, use_local_synchronization=True))


def _position(rank: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    found: list[int] = []
    for size in reversed(shape):
        rank, here = divmod(rank, size)
        found.insert(0, here)
    return tuple(found)


def split_dim(placement: str) -> int | None:
    """The dim of S0, S1, …; None for R and P."""
    return int(placement[1:]) if placement.startswith("S") else None


def index_at(shape: Sequence[int], layout: Layout, position: Sequence[int]) -> Index:
    """What the rank at a mesh position holds: splits of one dim nest, first axis outermost."""
    ranges = list(whole_index(shape))
    for size, placement, here in zip(layout.mesh, layout.placements, position, strict=True):
        dim = split_dim(placement)
        if dim is not None:
            start, stop = ranges[dim]
            first, last = part(stop - start, size, here)
            ranges[dim] = (start + first, start + last)
    return tuple(ranges)


class Layouts:
    """Sharding, redistribution and operations on sharded tensors."""

    wire_type = Regions

    def __init__(self) -> None:
        self._meshes: dict[tuple[tuple[int, ...], int], Mesh] = {}

    def mesh(self, layout: Layout, group: ProcessGroup) -> Mesh:
        """The grid of a layout, made once: its lines are groups, and a group costs a rendezvous."""
        key = (layout.mesh, id(group))
        if key not in self._meshes:
            self._meshes[key] = Mesh(layout.mesh, group, self.wire_type)
        return self._meshes[key]

    def shard(self, whole: Tensor, layout: Layout, *, group: ProcessGroup) -> Piece:
        """This rank's part: no communication."""
        index = index_at(whole.shape, layout, _position(dist.get_rank(group), layout.mesh))
        return Piece(whole[tuple(slice(a, b) for a, b in index)].clone(), index)

    def redistribute(
        self, piece: Piece, shape: tuple[int, ...], source: Layout, target: Layout, *, group: ProcessGroup
    ) -> Piece:
        """Along each axis: gather or sum, then split again. The gradient goes the same way back.

        Cost  per axis: an all_gather for S, an all_reduce for P; on a line of ranks P to S is one reduce_scatter,
              and S to another S one all_to_all
        """
        mesh = self.mesh(source, group)
        x = piece.local
        if len(mesh.shape) == 1 and source.placements != target.placements:
            given, wanted = split_dim(source.placements[0]), split_dim(target.placements[0])
            if wanted is not None and source.placements != ("R",):
                return self._to_another_part(x, shape, given, wanted, target, mesh)
        for axis in reversed(range(len(mesh.shape))):
            x = self._to_common(x, shape, source, mesh, axis)
        for axis in range(len(mesh.shape)):
            x = self._to_part(x, target, mesh, axis)
        return Piece(x, index_at(shape, target, mesh.position))

    def _to_another_part(
        self, x: Tensor, shape: tuple[int, ...], given: int | None, wanted: int, target: Layout, mesh: Mesh
    ) -> Piece:
        """From summands (given is None) or parts along a dim, without ever holding the whole."""
        wire = mesh.lines[0]
        if wire is not None and given is None:
            x = wire.leave_to_parts(x, wanted, wire.bounds(shape[wanted]))
        elif wire is not None and given is not None:
            x = wire.turn(x, given, wire.bounds(shape[given]), wanted, wire.bounds(shape[wanted]))
        return Piece(x, index_at(shape, target, mesh.position))

    def _to_common(self, x: Tensor, shape: tuple[int, ...], source: Layout, mesh: Mesh, axis: int) -> Tensor:
        """Undo the placement of one axis; axes after it are undone already."""
        wire, placement = mesh.lines[axis], source.placements[axis]
        dim = split_dim(placement)
        if wire is None or placement == "R":
            return x
        if dim is None:
            return wire.leave(x)
        outer = Layout(source.mesh[:axis], source.placements[:axis])
        start, stop = index_at(shape, outer, mesh.position[:axis])[dim]
        return wire.gather_parts(x, dim, wire.bounds(stop - start))

    def _to_part(self, x: Tensor, target: Layout, mesh: Mesh, axis: int) -> Tensor:
        wire, dim = mesh.lines[axis], split_dim(target.placements[axis])
        if wire is None or dim is None:
            return x
        return wire.split(x, dim, wire.bounds(x.shape[dim]))

    def hand_over(
        self, piece: Piece, shape: tuple[int, ...], layout: Layout, *, group: ProcessGroup
    ) -> Piece:
        """A piece holds a plain tensor, and a summand's gradient is that of the sum: nothing to do."""
        return Piece(piece.local.view_as(piece.local), piece.index)

    def join(
        self, local: Tensor, shape: tuple[int, ...] | None, layout: Layout, *, group: ProcessGroup
    ) -> Tensor:
        """The parts say how long they are, then what they hold: two all_gathers. What was told has to agree."""
        wire, dim = self.wire_type(group), split_dim(layout.placements[0])
        assert dim is not None
        length = torch.tensor([local.shape[dim]], device=local.device)
        stops = wire.gather(length, 0, [(rank, rank + 1) for rank in range(wire.size)]).cumsum(0).tolist()
        whole = (*local.shape[:dim], stops[-1], *local.shape[dim + 1 :])
        if shape is not None and whole != shape:
            raise InvalidPlan(f"parts of a tensor {whole}", expected=f"parts of {shape}", where="join")
        return wire.gather_parts(local, dim, list(zip([0, *stops], stops, strict=False)))

    def flatten(self, mesh: tuple[int, ...], axes: tuple[int, ...], *, group: ProcessGroup) -> ProcessGroup:
        """Ranks whose place differs along the axes alone, as a group."""
        me = _position(dist.get_rank(group), mesh)
        kept = [axis for axis in range(len(mesh)) if axis not in axes]
        places = [_position(number, mesh) for number in range(math.prod(mesh))]
        members = dist.get_process_group_ranks(group)
        mine = [m for m, p in zip(members, places, strict=True) if all(p[axis] == me[axis] for axis in kept)]
        made: Any = group if mine == members else dist.new_group(mine, use_local_synchronization=True)
        return made  # type: ignore[no-any-return]

    def statistic(
        self, piece: Piece, shape: tuple[int, ...], layout: Layout, name: str, *, group: ProcessGroup
    ) -> Tensor:
        """Sums over the parts, divided by the size of the whole: parts need not be equal."""
        mesh, count, x = self.mesh(layout, group), math.prod(shape), piece.local.detach()
        if name == "norm":
            return self.total(x.square().sum(), layout, mesh).sqrt()
        mean = self.total(x.sum(), layout, mesh) / count
        if name == "mean":
            return mean
        var = self.total((x - mean).square().sum(), layout, mesh) / (count - 1)
        return var if name == "var" else var.sqrt()

    def total(self, part_sum: Tensor, layout: Layout, mesh: Mesh) -> Tensor:
        """Summed over the axes that split; along the others all ranks hold the same."""
        for wire, placement in zip(mesh.lines, layout.placements, strict=True):
            if wire is not None and placement != "R":
                part_sum = wire.sum(part_sum)
        return part_sum

    def view(
        self,
        piece: Piece,
        shape: tuple[int, ...],
        layout: Layout,
        new_shape: tuple[int, ...],
        *,
        group: ProcessGroup,
    ) -> Piece:
        """Put together, then viewed: rows of the new shape may cross the parts of the old."""
        common = Layout(layout.mesh, tuple("R" for _ in layout.mesh))
        whole = self.redistribute(piece, shape, layout, common, group=group).local.reshape(new_shape)
        return Piece(whole, whole_index(whole.shape))

    def fill(
        self,
        piece: Piece,
        shape: tuple[int, ...],
        layout: Layout,
        where: Index,
        value: float,
        *,
        group: ProcessGroup,
    ) -> Piece:
        """Each rank writes what falls into its part."""
        local = piece.local.clone()
        mine = [
            slice(max(a, c) - a, max(min(b, d) - a, 0))
            for (a, b), (c, d) in zip(piece.index, where, strict=True)
        ]
        local[tuple(mine)] = value
        return Piece(local, piece.index)

    def random(
        self, shape: tuple[int, ...], layout: Layout, *, kind: str, seed: int, group: ProcessGroup
    ) -> Piece:
        """Drawn whole on every rank from the seed, then cut: costs the memory of the whole for a moment."""
        generator = torch.Generator().manual_seed(seed)
        if kind == "normal":
            whole = torch.randn(shape, dtype=torch.float64, generator=generator)
        else:
            whole = 2.0 * torch.rand(shape, dtype=torch.float64, generator=generator).ge(0.5).double()
        return self.shard(whole, layout, group=group)
