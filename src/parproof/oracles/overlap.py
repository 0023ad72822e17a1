"""Exposed communication by counting: on a grid of unit cells, a cell is covered or it is not."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise


def count_cells(start: float, end: float, compute: Sequence[tuple[float, float]]) -> tuple[int, int]:
    """(cells of the interval, cells that some compute interval covers); all ends are whole numbers."""
    cells = range(int(start), int(end))
    return len(cells), sum(any(a <= cell < b for a, b in compute) for cell in cells)


def count_ns(start: int, end: int, compute: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The same in ns, for intervals of millions of them: cells reach from each time that occurs to the next."""
    times = sorted({start, end, *(t for span in compute for t in span if start < t < end)})
    covered = [b - a for a, b in pairwise(times) if any(s <= a and b <= e for s, e in compute)]
    return end - start, sum(covered)


def imbalance(elapsed: Sequence[int]) -> float:
    """How far the slowest rank is from the fastest, in units of the mean; of whole numbers, rounded once."""
    return float(Fraction(len(elapsed) * (max(elapsed) - min(elapsed)), sum(elapsed)))


# The source page's list of what to measure next.
NEXT_MEASUREMENTS = {
    "rebalance_ranks_or_experts": "rank_elapsed_ms, expert_load_skew, cross_rank_token_ratio",
    "increase_overlap_or_delay_sync": "exposed_comm_ms, overlap_ratio, step_time_ms",
    "reduce_routing_traffic": "dispatch_payload_bytes, cross_rank_token_ratio, throughput_tokens_per_s",
    "inspect_collective_payload_and_schedule": "exposed_comm_ms, payload_bytes, step_time_ms",
}


def first_action(collective: str, exposed: float, payload: int, overlap: float, imbalance: float) -> str:
    """The decision table, row by row, as the source page lists it."""
    table = [
        (imbalance > 0.20, "rebalance_ranks_or_experts"),
        (overlap < 0.30 and exposed > 0, "increase_overlap_or_delay_sync"),
        (collective == "all_to_all" and payload > 0, "reduce_routing_traffic"),
        (True, "inspect_collective_payload_and_schedule"),
    ]
    return next(action for holds, action in table if holds)
