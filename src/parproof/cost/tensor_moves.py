"""What moving a tensor from one layout to another costs, along one axis of a mesh.

Legend: S the bytes of the whole; p the ranks of the axis; L the longest part along a split dim, as all parts of an
all_gather or a reduce_scatter are as long as the longest. Payload is what a rank hands in and gets back.

    split to common     all_gather      L-th part in, p of them out
    common to split     nothing: every rank cuts its part out
    summand to common   all_reduce      S in, S out
    summand to split    reduce_scatter  p longest parts in, one out
    split to split      all_to_all      the own part of the old layout in, that of the new one out

The gradient goes the same way back. A summand is used once, in the sum, so its gradient is what all have in common.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from parproof.cost.traffic import Traffic

Lengths = Sequence[Sequence[int]]  # rank of the axis → its part's length along each dim


def move_traffic(
    source: str, target: str, shape: Sequence[int], given: Lengths, wanted: Lengths, place: int, e: int
) -> list[Traffic]:
    """Forward and backward of one rank.

    source, target   S0, S1, …, R or P
    given, wanted    before and after; as long as the axis has ranks
    place            the rank's number on the axis
    e                bytes of a number
    """
    back = "R" if source == "P" else source
    forward = _one_way(source, target, shape, given, wanted, place, e, "forward")
    return forward + _one_way(target, back, shape, wanted, given, place, e, "backward")


def _one_way(
    source: str,
    target: str,
    shape: Sequence[int],
    given: Lengths,
    wanted: Lengths,
    place: int,
    e: int,
    phase: str,
) -> list[Traffic]:
    p, whole = len(given), math.prod(shape) * e
    if p == 1 or source in ("R", target):
        return []

    def longest(placement: str, parts: Lengths) -> int:
        dim = int(placement[1:])
        return max(part[dim] for part in parts) * whole // shape[dim]

    if source == "P" and target == "R":
        return [Traffic("all_reduce", 1, whole, whole, p, phase)]
    if source == "P":
        part = longest(target, wanted)
        return [Traffic("reduce_scatter", 1, part * p, part, p, phase)]
    if target == "R":
        part = longest(source, given)
        return [Traffic("all_gather", 1, part, part * p, p, phase)]
    return [Traffic("all_to_all", 1, math.prod(given[place]) * e, math.prod(wanted[place]) * e, p, phase)]
