"""Exposed communication by counting: on a grid of unit cells, a cell is covered or it is not."""

from __future__ import annotations

from collections.abc import Sequence


def count_cells(start: float, end: float, compute: Sequence[tuple[float, float]]) -> tuple[int, int]:
    """(cells of the interval, cells that some compute interval covers); all ends are whole numbers."""
    cells = range(int(start), int(end))
    return len(cells), sum(any(a <= cell < b for a, b in compute) for cell in cells)


def first_action(collective: str, exposed: float, payload: int, overlap: float, imbalance: float) -> str:
    """The decision table, row by row, as the source page lists it."""
    table = [
        (imbalance > 0.20, "rebalance_ranks_or_experts"),
        (overlap < 0.30 and exposed > 0, "increase_overlap_or_delay_sync"),
        (collective == "all_to_all" and payload > 0, "reduce_routing_traffic"),
        (True, "inspect_collective_payload_and_schedule"),
    ]
    return next(action for holds, action in table if holds)
