"""Checks of layouts: what is moved, joined, counted or written to is the tensor, and copies are equal."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from parproof.checks.layout_places import assert_places
from parproof.checks.tensor import answered, assert_pieces, rounding_bound
from parproof.checks.values import assert_within
from parproof.programs.tensor import Outcome
from parproof.subjects.tensor_protocol import Layout
from parproof.workloads import layouts as cases_of
from parproof.workloads.layouts import Fill, Join, Move, View


def assert_whole(
    outcomes: Sequence[Outcome],
    whole: Tensor,
    what: str,
    *,
    layout: Layout | None = None,
    may_refuse: bool = False,
) -> None:
    """The ranks' parts are the parts of this tensor, bit for bit; each is the rank's own, where a layout was asked for."""
    __tracebackhide__ = True
    if answered(outcomes, what, may_refuse=may_refuse):
        if layout is not None:
            assert_places([o.output for o in outcomes if o.output is not None], whole.shape, layout, what)
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
    assert_whole(outcomes, move.whole(), f"{move.name}: moved tensor", layout=move.target)
    gradients = [[o.input_gradient] if o.input_gradient else [] for o in outcomes]
    whole = move.upstream()
    assert_pieces(gradients, whole, dtype=whole.dtype, what=f"{move.name}: gradient")
    given = [o.input_gradient for o in outcomes if o.input_gradient is not None]
    assert_places(given, move.shape, move.source, f"{move.name}: what was given")


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
        if not case.cuts:
            given = [o.input_gradient for o in by_rank if o.input_gradient is not None]
            assert_places(given, case.shape, cases_of.line(len(by_rank), f"S{case.dim}"), f"{case}: parts")
    return refused


def assert_operated(outcomes: Sequence[Sequence[Outcome]], cases: Sequence[View | Fill]) -> None:
    """outcomes[rank][case]: a slice is written in place; a view is in a layout of the subject's choice, or refused."""
    __tracebackhide__ = True
    for case, by_rank in zip(cases, zip(*outcomes, strict=True), strict=True):
        layout = case.layout if isinstance(case, Fill) else None
        assert_whole(by_rank, case.whole(), f"{case}", layout=layout, may_refuse=isinstance(case, View))


def assert_drawn(outcomes: Sequence[Sequence[Outcome]], layouts: Sequence[Layout], kind: str) -> None:
    """outcomes[rank]: one tensor in each layout, whole on every rank in the first; then one of another seed."""
    __tracebackhide__ = True
    *by_layout, of_another_seed = zip(*outcomes, strict=True)
    first = outcomes[0][0].output
    assert first is not None, f"rank 0 of {len(outcomes)}: no {kind} values: {outcomes[0][0].refused}"
    for layout, by_rank in zip(layouts, by_layout, strict=True):
        what = f"{kind} values in layout {layout.placements[0]}"
        assert_whole(by_rank, first.local, what, layout=layout)
    for rank, outcome in enumerate(of_another_seed):
        if outcome.output is None or torch.equal(outcome.output.local, first.local):
            raise AssertionError(
                f"rank {rank} of {len(outcomes)}: {kind} values of another seed: the same ones, expected others"
            )


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
