"""Checks of layouts: what is moved, joined, counted or written to is the tensor, and copies are equal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from parproof.checks.tensor import answered, assert_pieces, rounding_bound
from parproof.checks.values import assert_within
from parproof.programs.tensor import Outcome
from parproof.subjects.tensor_protocol import Layout
from parproof.workloads import layouts as cases_of
from parproof.workloads.layouts import Join, Move


def assert_whole(outcomes: Sequence[Outcome], whole: Tensor, what: str, *, may_refuse: bool = False) -> None:
    """The ranks' parts are the parts of this tensor, bit for bit."""
    __tracebackhide__ = True
    if answered(outcomes, what, may_refuse=may_refuse):
        pieces = [[o.output] if o.output else [] for o in outcomes]
        assert_pieces(pieces, whole, dtype=whole.dtype, what=what)


def assert_moves(outcomes: Sequence[Sequence[Outcome]], moves: Sequence[Move]) -> None:
    """outcomes[rank][move]."""
    __tracebackhide__ = True
    for move, by_rank in zip(moves, zip(*outcomes, strict=True), strict=True):
        assert_move(by_rank, move)


def assert_move(outcomes: Sequence[Outcome], move: Move) -> None:
    """The moved tensor is the tensor, and the gradient that comes back is the gradient that was handed in."""
    __tracebackhide__ = True
    if not answered(outcomes, move.name, may_refuse=False):
        return
    assert_whole(outcomes, move.whole(), f"{move.name}: moved tensor")
    gradients = [[o.input_gradient] if o.input_gradient else [] for o in outcomes]
    whole = move.upstream()
    assert_pieces(gradients, whole, dtype=whole.dtype, what=f"{move.name}: gradient")


def assert_joined(outcomes: Sequence[Sequence[Outcome]], cases: Sequence[Join]) -> list[str]:
    """outcomes[rank][case]: the whole on every rank, and each part's gradient. Returns what was refused."""
    __tracebackhide__ = True
    refused = []
    for case, by_rank in zip(cases, zip(*outcomes, strict=True), strict=True):
        if not answered(by_rank, f"{case}", may_refuse=case.may_refuse):
            refused.append(f"{case}")
            continue
        assert_whole(by_rank, case.whole(), f"{case}: whole")
        gradients = [[o.input_gradient] if o.input_gradient else [] for o in by_rank]
        whole = case.upstream()
        assert_pieces(gradients, whole, dtype=whole.dtype, what=f"{case}: gradient")
    return refused


def assert_flattened(
    found: Sequence[Sequence[list[int]]], cases: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
) -> None:
    """found[rank][case]: as many ranks as the axes' sizes multiply to, in their order."""
    __tracebackhide__ = True
    for rank, lines in enumerate(found):
        for (mesh, axes), observed in zip(cases, lines, strict=True):
            expected = cases_of.flat_line(rank, mesh, axes)
            if observed != expected:
                raise AssertionError(
                    f"rank {rank} of {len(found)}: axes {axes} of mesh {mesh} taken as one: ranks {observed},"
                    f" expected {expected}"
                )


def assert_statistics(
    found: Sequence[Sequence[dict[str, Tensor]]], shape: tuple[int, ...], layouts: Sequence[Layout]
) -> None:
    """found[rank][layout]: each statistic of the coded tensor, within the rounding of its sums."""
    __tracebackhide__ = True
    for rank, by_layout in enumerate(found):
        where = f"rank {rank} of {len(found)}"
        for layout, values in zip(layouts, by_layout, strict=True):
            for name, value in values.items():
                expected = cases_of.statistic(shape, name)
                bound = rounding_bound(expected.dtype, len(found), math.prod(shape), float(expected), 0.0)
                what = f"{name} of {layout.placements[0]}"
                assert_within(value, expected, bound=bound, where=where, what=what)
