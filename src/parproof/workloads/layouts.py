"""Tensors and moves for the claims about layouts: every element encodes its place."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from parproof.subjects.tensor_protocol import Index, Layout
from parproof.workloads.tensor import laid_out


def coded(shape: tuple[int, ...]) -> Tensor:
    """1, 2, 3 … in float32: no two elements are equal, none is zero."""
    return torch.arange(1, math.prod(shape) + 1, dtype=torch.float32).reshape(shape)


@dataclass(frozen=True)
class Move:
    """A tensor from one layout to another; `memory` is how a summand (P) lies in memory.

    handed_over   first it goes to code that knows no layouts, as plain local tensors, and comes back
    """

    name: str
    shape: tuple[int, ...]
    source: Layout
    target: Layout
    memory: str = "contiguous"
    handed_over: bool = False

    def whole(self) -> Tensor:
        """The tensor."""
        return coded(self.shape)

    def upstream(self) -> Tensor:
        """The gradient handed to the moved tensor."""
        return coded(self.shape) * 3 - 7

    def summand(self, rank: int) -> Tensor:
        """This rank's share of a tensor that is still to be summed: all different along P, equal along R and S."""
        whole, place = self.whole(), position(rank, self.source.mesh)
        along = [i for i, placement in enumerate(self.source.placements) if placement == "P"]
        sizes = [self.source.mesh[i] for i in along]
        number = sum(place[i] * math.prod(sizes[at + 1 :]) for at, i in enumerate(along))
        shares = [whole * (r + 2) - r * 11 for r in range(math.prod(sizes) - 1)]
        shares.append(whole - sum(shares))
        return laid_out(shares[number], self.memory)


@dataclass(frozen=True)
class Join:
    """The whole of a tensor, asked for on every rank by those who hold a part of it.

    told   whether they know the shape of the whole
    cuts   (start, stop) of each rank's part; empty: the parts are those of the subject's own making
    """

    shape: tuple[int, ...]
    dim: int
    told: bool = True
    cuts: tuple[tuple[int, int], ...] = ()

    @property
    def may_refuse(self) -> bool:
        """Parts of one's own making put together again are no matter of choice."""
        return bool(self.cuts) or not self.told

    def whole(self) -> Tensor:
        """The tensor."""
        return coded(self.shape)

    def upstream(self) -> Tensor:
        """The gradient handed to the whole."""
        return coded(self.shape) * 3 - 7

    def index(self, rank: int) -> Index:
        """What a rank holds, by the cuts."""
        return tuple(self.cuts[rank] if dim == self.dim else (0, size) for dim, size in enumerate(self.shape))


@dataclass(frozen=True)
class View:
    """A tensor viewed in another shape."""

    shape: tuple[int, ...]
    layout: Layout
    new_shape: tuple[int, ...]

    def whole(self) -> Tensor:
        """The tensor afterwards."""
        return coded(self.shape).view(self.new_shape)


@dataclass(frozen=True)
class Fill:
    """A slice of a tensor overwritten."""

    shape: tuple[int, ...]
    layout: Layout
    where: Index
    value: float = -5.0

    def whole(self) -> Tensor:
        """The tensor afterwards."""
        whole = coded(self.shape)
        whole[tuple(slice(a, b) for a, b in self.where)] = self.value
        return whole


def line(ranks: int, placement: str) -> Layout:
    """One axis."""
    return Layout((ranks,), (placement,))


def position(rank: int, mesh: tuple[int, ...]) -> tuple[int, ...]:
    """A rank's place in a mesh, last axis fastest."""
    return tuple(rank // math.prod(mesh[axis + 1 :]) % mesh[axis] for axis in range(len(mesh)))


# (mesh of four ranks, axes to take as one): all of them, some of them, axes of one rank alone
FLATTENED = (
    ((4, 1, 1), (0, 1, 2)),
    ((4, 1, 1), (1, 2)),
    ((1, 1, 4), (0, 1, 2)),
    ((1, 1, 4), (0, 1)),
    ((2, 1, 2), (0, 1, 2)),
    ((2, 1, 2), (0, 1)),
    ((2, 1, 2), (0, 2)),
    ((2, 2, 1), (1, 2)),
    ((2, 2), (0, 1)),
)


def flat_line(rank: int, mesh: tuple[int, ...], axes: tuple[int, ...]) -> list[int]:
    """Ranks that differ from this one along the axes alone, in order."""

    def off(other: int) -> list[int]:
        return [at for axis, at in enumerate(position(other, mesh)) if axis not in axes]

    return [other for other in range(math.prod(mesh)) if off(other) == off(rank)]


def moves(kind: str, ranks: int) -> list[Move]:
    """A table of moves by its name."""
    if kind in ("grid", "flattened_grid"):
        return moves_on_a_grid(flattened=kind == "flattened_grid")
    tables = {
        "line": moves_on_a_line,
        "turns": turns_on_a_line,
        "sums": sums_on_a_line,
        "thin_grid": moves_on_a_thin_grid,
        "handed_over": handed_over_on_a_line,
        "sums_on_a_grid": sums_on_a_grid,
    }
    return tables[kind](ranks)


def handed_over_on_a_line(ranks: int) -> list[Move]:
    """Each placement, even and uneven, out to plain tensors and back before it moves."""
    return [
        Move(f"{shape} {a} to {b} handed over", shape, line(ranks, a), line(ranks, b), memory, True)
        for shape, memory in [((12, 8), "contiguous"), ((11, 5), "transposed")]
        for a, b in [("P", "R"), ("P", "S1"), ("S0", "R"), ("S1", "S0"), ("R", "S0")]
    ]


def sums_on_a_grid(ranks: int) -> list[Move]:
    """2 × (ranks / 2) ranks: summands along one axis or both, uneven parts along the other; direct and handed over."""
    mesh = (2, ranks // 2)
    sources = [("P", "S0"), ("S0", "P"), ("P", "P"), ("P", "R"), ("S0", "S0"), ("S1", "R")]
    return [
        Move(
            f"(5, 3) {' '.join(p)} to R R{' handed over' * over}",
            (5, 3),
            Layout(mesh, p),
            common,
            "contiguous",
            over,
        )
        for p in sources
        for over in (False, True)
        for common in [Layout(mesh, ("R", "R"))]
    ]


def joins(ranks: int) -> list[Join]:
    """Every width up to 2p + 1 that p does not divide, fewer than p among them, and one that it does."""
    return [
        Join(shape, dim, told)
        for size in [*(n for n in range(1, 2 * ranks + 2) if n % ranks), 2 * ranks]
        for dim, shape in [(0, (size, 3)), (1, (2, size))]
        for told in (True, False)
    ]


def joins_of_own_parts(ranks: int) -> list[Join]:
    """Parts that somebody else cut, the short one first: as many elements, at other places."""
    cuts = ((0, 1), *((2 * n - 1, 2 * n + 1) for n in range(1, ranks)))
    size = cuts[-1][1]
    return [
        Join(shape, dim, told, cuts)
        for dim, shape in [(0, (size, 3)), (1, (2, size))]
        for told in (True, False)
    ]


def moves_on_a_line(ranks: int) -> list[Move]:
    """From parts to the whole and back, for sizes that do and do not divide by 2, 3 and 4."""
    return _on_a_line(ranks, [("S0", "R"), ("S1", "R"), ("R", "S0"), ("R", "S1")])


def turns_on_a_line(ranks: int) -> list[Move]:
    """From parts along one dim to parts along another."""
    return _on_a_line(ranks, [("S0", "S1"), ("S1", "S0")])


def _on_a_line(ranks: int, pairs: list[tuple[str, str]]) -> list[Move]:
    return [
        Move(f"{shape} {source} to {target}", shape, line(ranks, source), line(ranks, target))
        for shape in [(12, 8), (11, 5), (5, 13)]
        for source, target in pairs
    ]


def sums_on_a_line(ranks: int) -> list[Move]:
    """Summands to the sum, whole or split, also where they do not lie contiguously in memory."""
    return [
        Move(f"{shape} {memory} P to {target}", shape, line(ranks, "P"), line(ranks, target), memory)
        for shape in [(12, 8), (11, 5)]
        for memory in ("contiguous", "transposed", "strided")
        for target in ("R", "S0", "S1")
    ]


def moves_on_a_grid(*, flattened: bool) -> list[Move]:
    """2 × 2 ranks; one dim split twice, and two dims split once, with sizes that do not divide."""
    common = Layout((2, 2), ("R", "R"), flattened)
    sources = [("S0", "S0"), ("S0", "S1"), ("S1", "R"), ("R", "S0"), ("S1", "S1")]
    return [
        Move(f"{shape} {' '.join(p)} to R R", shape, Layout((2, 2), p, flattened), common)
        for shape in [(8, 4), (5, 3), (7, 6)]
        for p in sources
    ]


def moves_on_a_thin_grid(ranks: int) -> list[Move]:
    """ranks × 1 × 1: axes of one rank must change nothing."""
    mesh = (ranks, 1, 1)
    source, target = Layout(mesh, ("S0", "R", "R"), True), Layout(mesh, ("R", "R", "R"), True)
    return [Move(f"{shape} thin", shape, source, target) for shape in [(8, 4), (5, 3)]]


def views(ranks: int) -> list[View]:
    """Views whose rows cross the parts of the old shape."""
    return [
        View(shape, line(ranks, placement), new_shape)
        for shape, new_shape in [((12, 8), (16, 6)), ((12, 8), (96,)), ((11, 6), (6, 11))]
        for placement in ("S0", "S1")
    ]


_SLICES = (((0, 11), (2, 4)), ((4, 9), (0, 6)), ((0, 1), (0, 6)), ((9, 11), (5, 6)))


def fills(ranks: int) -> list[Fill]:
    """Slices along the split dim: in one part, across parts, of one row."""
    return [
        Fill((11, 6), line(ranks, f"S{dim}"), where)
        for dim, size in enumerate((11, 6))
        for where in _SLICES
        if where[dim] != (0, size)
    ]


def fills_elsewhere(ranks: int) -> list[Fill]:
    """Slices that take the split dim whole, and slices of a tensor that is not split."""
    placements = [("S0", 11, 0), ("S1", 6, 1)]
    across = [
        Fill((11, 6), line(ranks, p), where)
        for p, size, dim in placements
        for where in _SLICES
        if where[dim] == (0, size)
    ]
    return across + [Fill((11, 6), line(ranks, "R"), where) for where in _SLICES]


def statistic(shape: tuple[int, ...], name: str) -> Tensor:
    """Of the coded tensor, in float64."""
    x = coded(shape).double()
    if name == "norm":
        return x.square().sum().sqrt()
    mean = x.sum() / x.numel()
    var = (x - mean).square().sum() / (x.numel() - 1)
    return {"mean": mean, "var": var, "std": var.sqrt()}[name]
