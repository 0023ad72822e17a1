"""Checks of where the parts of a tensor lie: computed here from mesh and placements, whatever the subject says."""

from __future__ import annotations

import math
from collections.abc import Sequence

from parproof.subjects.tensor_protocol import Layout, Piece
from parproof.workloads.layouts import position


def assert_places(pieces: Sequence[Piece], shape: Sequence[int], layout: Layout, what: str) -> None:
    """Every rank holds the part that is its own in this layout, and as many elements as it says.

    A dim that k ranks split is cut in k parts in their order, the first axis outermost, none longer than its size / k
    rounded up: parts that differ by one element will do, and those of torch.chunk. A dim that no axis splits is
    whole on every rank.

    pieces   pieces[rank]
    """
    __tracebackhide__ = True
    for rank, piece in enumerate(pieces):
        said = tuple(stop - start for start, stop in piece.index)
        if len(piece.index) != len(shape) or tuple(piece.local.shape) != said:
            raise AssertionError(
                f"rank {rank} of {len(pieces)}: {what}: a tensor of shape {tuple(piece.local.shape)} is said to be"
                f" {piece.index} of {tuple(shape)}"
            )
    for dim, size in enumerate(shape):
        _assert_cut([piece.index[dim] for piece in pieces], dim, size, layout, what)


def _assert_cut(ranges: Sequence[tuple[int, int]], dim: int, size: int, layout: Layout, what: str) -> None:
    __tracebackhide__ = True
    axes = [axis for axis, placement in enumerate(layout.placements) if placement == f"S{dim}"]
    longest, parts = size, math.prod(layout.mesh[axis] for axis in axes)
    for axis in axes:
        longest = math.ceil(longest / layout.mesh[axis])
    numbers = [_number(rank, axes, layout.mesh) for rank in range(len(ranges))]
    starts = _starts(dict(zip(reversed(numbers), reversed(ranges), strict=True)), parts)
    for rank, (number, (start, stop)) in enumerate(zip(numbers, ranges, strict=True)):
        here, then = starts[number], starts[number + 1] if number + 1 < parts else size
        in_place = (start, stop) == (here, then) or (start == stop and here == then)
        if not in_place or stop - start > longest:
            raise AssertionError(
                f"rank {rank} of {len(ranges)}: {what}: it holds {start}:{stop} of dim {dim} of {size},"
                f" expected part {number + 1} of {parts} in the order of the ranks ({' '.join(layout.placements)}),"
                f" at most {longest} long"
            )


def _number(rank: int, axes: Sequence[int], mesh: tuple[int, ...]) -> int:
    """Which of the parts is this rank's."""
    number = 0
    for axis in axes:
        number = number * mesh[axis] + position(rank, mesh)[axis]
    return number


def _starts(ranges: dict[int, tuple[int, int]], parts: int) -> list[int]:
    """Where each part begins if the parts lie one behind the other, with the lengths that they have."""
    found, at = [], 0
    for number in range(parts):
        found.append(at)
        at += ranges[number][1] - ranges[number][0]
    return found
