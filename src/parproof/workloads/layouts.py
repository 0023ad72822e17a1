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
    """A tensor from one layout to another; `memory` is how a summand (P) lies in memory."""

    name: str
    shape: tuple[int, ...]
    source: Layout
    target: Layout
    memory: str = "contiguous"

    def whole(self) -> Tensor:
        """The tensor."""
        return coded(self.shape)

    def upstream(self) -> Tensor:
        """The gradient handed to the moved tensor."""
        return coded(self.shape) * 3 - 7

    def summand(self, rank: int, ranks: int) -> Tensor:
        """This rank's share of a tensor that is still to be summed; all different, sum = whole."""
        whole = self.whole()
        shares = [whole * (r + 2) - r * 11 for r in range(ranks - 1)]
        shares.append(whole - sum(shares))
        return laid_out(shares[rank], self.memory)


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


def moves_on_a_line(ranks: int) -> list[Move]:
    """All pairs of placements, for sizes that do and do not divide by 2, 3 and 4."""
    found = []
    for shape in [(12, 8), (11, 5), (5, 13)]:
        for source in ("S0", "S1", "R"):
            found += [
                Move(f"{shape} {source} to {target}", shape, line(ranks, source), line(ranks, target))
                for target in ("S0", "S1", "R")
                if source != target
            ]
    return found


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


def fills(ranks: int) -> list[Fill]:
    """Slices in one part, across parts, and of one row."""
    return [
        Fill((11, 6), line(ranks, placement), where)
        for placement in ("S0", "S1", "R")
        for where in [((0, 11), (2, 4)), ((4, 9), (0, 6)), ((0, 1), (0, 6)), ((9, 11), (5, 6))]
    ]


def statistic(shape: tuple[int, ...], name: str) -> Tensor:
    """Of the coded tensor, in float64."""
    x = coded(shape).double()
    if name == "norm":
        return x.square().sum().sqrt()
    mean = x.sum() / x.numel()
    var = (x - mean).square().sum() / (x.numel() - 1)
    return {"mean": mean, "var": var, "std": var.sqrt()}[name]
