"""DTensor layouts, and operations on DTensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.nn import functional

from parproof.errors import InvalidPlan
from parproof.subjects.tensor_protocol import Index, Layout, Piece
from parproof.subjects.torch_native.tensor_modules import statistics


def mesh_of(group: ProcessGroup) -> DeviceMesh:
    """One axis over a group."""
    return DeviceMesh.from_group(group, device_of(group))


def device_of(group: ProcessGroup) -> str:
    """Where the group's tensors live."""
    return "cuda" if dist.get_backend(group) == "nccl" else "cpu"


def placements_of(layout: Layout) -> list[Placement]:
    """S0 → Shard(0), R → Replicate(), P → Partial()."""
    known: dict[str, Placement] = {"R": Replicate(), "P": Partial()}
    return [known[p] if p in known else Shard(int(p[1:])) for p in layout.placements]


def index_of(shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]) -> Index:
    """What torch says this rank holds."""
    local, offset = compute_local_shape_and_global_offset(tuple(shape), mesh, tuple(placements))
    return tuple((start, start + size) for start, size in zip(offset, local, strict=True))


def piece_of(tensor: Tensor) -> Piece:
    """A DTensor's local part and where it is; a plain tensor is all there is."""
    if not isinstance(tensor, DTensor):
        return Piece(tensor, tuple((0, size) for size in tensor.shape))
    index = index_of(tensor.shape, tensor.device_mesh, tensor.placements)
    return Piece(tensor.to_local(), index)


def as_dtensor(
    local: Tensor,
    mesh: DeviceMesh,
    placements: Sequence[Placement] = (Replicate(),),
    shape: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
) -> DTensor:
    """The whole that a local part belongs to; its shape is given, since parts may be unequal."""
    whole = torch.Size(shape if shape is not None else local.shape)
    strides = tuple(stride or (math.prod(whole[i + 1 :]) for i in range(len(whole))))
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=whole, stride=strides)


# How DTensor says that it cannot view a split tensor so: torch 2.13; 2.12 for an inner dim; 2.11.
_VIEW_REFUSALS = ("evenly sharded", "is not supported yet", "without redistribution")


def _grid(shape: tuple[int, ...], group: ProcessGroup) -> DeviceMesh:
    """The world's ranks as a grid with named axes."""
    if group is not dist.group.WORLD:
        raise InvalidPlan("a grid over a part of the world", expected="the whole world")
    return init_device_mesh(device_of(group), shape, mesh_dim_names=tuple("abcdef"[: len(shape)]))


class Layouts:
    """Layouts and operations as DTensor has them."""

    def __init__(self) -> None:
        self._grids: dict[Layout, DeviceMesh] = {}

    def mesh(self, layout: Layout, group: ProcessGroup) -> DeviceMesh:
        """The group's ranks as a grid, made once; flattened: with the one-axis mesh of all of them made as well."""
        if len(layout.mesh) == 1:
            return mesh_of(group)
        key = Layout(layout.mesh, (), layout.flattened)
        if key not in self._grids:
            self._grids[key] = _grid(layout.mesh, group)
            if layout.flattened:
                self._grids[key]._flatten("all")
        return self._grids[key]

    def shard(self, whole: Tensor, layout: Layout, *, group: ProcessGroup) -> Piece:
        """distribute_tensor."""
        return piece_of(distribute_tensor(whole, self.mesh(layout, group), placements_of(layout)))

    def redistribute(
        self, piece: Piece, shape: tuple[int, ...], source: Layout, target: Layout, *, group: ProcessGroup
    ) -> Piece:
        """DTensor.redistribute."""
        mesh = self.mesh(source, group)
        whole = as_dtensor(piece.local, mesh, placements_of(source), shape)
        return piece_of(whole.redistribute(placements=placements_of(target)))

    def hand_over(
        self, piece: Piece, shape: tuple[int, ...], layout: Layout, *, group: ProcessGroup
    ) -> Piece:
        """from_local, then to_local as it is called without a word about gradients."""
        return piece_of(as_dtensor(piece.local, self.mesh(layout, group), placements_of(layout), shape))

    def join(
        self, local: Tensor, shape: tuple[int, ...] | None, layout: Layout, *, group: ProcessGroup
    ) -> Tensor:
        """from_local with run_check, which compares the ranks' shapes when none was given; then full_tensor."""
        mesh, placements = self.mesh(layout, group), placements_of(layout)
        stated: dict[str, Any] = {}
        if shape is not None:
            strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
            stated = {"shape": torch.Size(shape), "stride": strides}
        try:
            found = DTensor.from_local(local, mesh, placements, run_check=True, **stated)
        except ValueError as refusal:
            # Every rank sees the shapes of all, so all refuse.
            raise InvalidPlan(str(refusal), where="DTensor.from_local") from refusal
        return found.full_tensor()

    def flatten(self, mesh: tuple[int, ...], axes: tuple[int, ...], *, group: ProcessGroup) -> ProcessGroup:
        """DeviceMesh._flatten, then the new axis by its name."""
        whole = _grid(mesh, group)
        names = whole.mesh_dim_names or ()
        some = whole if len(axes) == len(mesh) else whole[tuple(names[axis] for axis in axes)]
        some._flatten("flat")
        return whole["flat"].get_group()

    def statistic(
        self, piece: Piece, shape: tuple[int, ...], layout: Layout, name: str, *, group: ProcessGroup
    ) -> Tensor:
        """torch.mean, var, std, linalg.vector_norm of the DTensor."""
        whole = as_dtensor(piece.local, self.mesh(layout, group), placements_of(layout), shape)
        found: Any = statistics()[name](whole)
        return found.full_tensor() if isinstance(found, DTensor) else found

    def view(
        self,
        piece: Piece,
        shape: tuple[int, ...],
        layout: Layout,
        new_shape: tuple[int, ...],
        *,
        group: ProcessGroup,
    ) -> Piece:
        """DTensor.view."""
        whole = as_dtensor(piece.local, self.mesh(layout, group), placements_of(layout), shape)
        try:
            viewed: Any = whole.view(new_shape)
        except RuntimeError as refusal:
            # Raised before anything is sent, from sizes alone, so by all ranks alike.
            if not any(text in str(refusal) for text in _VIEW_REFUSALS):
                raise
            raise InvalidPlan(str(refusal).splitlines()[0], where="DTensor.view") from refusal
        if any(type(placement) not in (Shard, Replicate) for placement in viewed.placements):
            # A flattened inner dim is split in stripes, which is no piece.
            viewed = viewed.redistribute(placements=[Replicate()] * len(viewed.placements))
        return piece_of(viewed)

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
        """whole[where] = value."""
        whole = as_dtensor(piece.local.clone(), self.mesh(layout, group), placements_of(layout), shape)
        whole[tuple(slice(a, b) for a, b in where)].fill_(value)
        return piece_of(whole)

    def random(
        self, shape: tuple[int, ...], layout: Layout, *, kind: str, seed: int, group: ProcessGroup
    ) -> Piece:
        """torch.manual_seed, then nn.init.normal_ or dropout on a DTensor."""
        mesh, placements = self.mesh(layout, group), placements_of(layout)
        torch.manual_seed(seed)
        ones = torch.ones(shape, dtype=torch.float64, device=device_of(group))
        tensor = distribute_tensor(ones, mesh, placements)
        if kind == "normal":
            return piece_of(torch.nn.init.normal_(tensor))
        return piece_of(functional.dropout(tensor, 0.5))
