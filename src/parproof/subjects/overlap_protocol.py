"""Interface of the mechanism `overlap`: what communication is exposed, and what to test next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

Interval = tuple[float, float]

# What to test next, and what it has to be judged by.
MEASURE = {
    "collect_trace": ("exposed_comm_ms", "overlap_ratio"),
    "rebalance_ranks_or_experts": ("rank_elapsed_ms", "expert_load_skew", "cross_rank_token_ratio"),
    "increase_overlap_or_delay_sync": ("exposed_comm_ms", "overlap_ratio", "step_time_ms"),
    "reduce_routing_traffic": ("dispatch_payload_bytes", "cross_rank_token_ratio", "throughput_tokens_per_s"),
    "inspect_collective_payload_and_schedule": ("exposed_comm_ms", "payload_bytes", "step_time_ms"),
}


@dataclass(frozen=True)
class Communication:
    """One communication call on a rank's time line; times in ms on one clock."""

    op: str
    start_ms: float
    end_ms: float
    payload_bytes: int = 0


@dataclass(frozen=True)
class OpSummary:
    """All calls of one operation on one rank."""

    count: int
    time_ms: float
    payload_bytes: int
    exposed_ms: float


@dataclass(frozen=True)
class TimelineSummary:
    """One rank's time line.

    overlap_ms    length of the union of compute intervals inside communication, summed over calls
    exposed_ms    communication that no compute covers
    overlap_ratio overlap over communication; 0 without communication
    hotspot       operation with the largest exposed time; None without communication
    """

    total_ms: float
    overlap_ms: float
    exposed_ms: float
    overlap_ratio: float
    by_op: Mapping[str, OpSummary]
    hotspot: str | None


@dataclass(frozen=True)
class Hotspot:
    """One measured communication of a step, over all ranks."""

    collective: str
    exposed_ms: float
    payload_bytes: int
    overlap_ratio: float
    rank_imbalance: float


@dataclass(frozen=True)
class Mitigation:
    """priority: collective with the largest summed exposed time; decision: accept, tune or collect_more_evidence."""

    priority: str | None
    action: str
    measure: tuple[str, ...]
    decision: str


class Overlap(Protocol):
    """What a subject implements."""

    def summarize(
        self, communication: Sequence[Communication], compute: Sequence[Interval]
    ) -> TimelineSummary:
        """One rank's time line. Errors: InvalidPlan for an interval that ends before it starts."""

    def rank_imbalance(self, elapsed_ms: Sequence[float]) -> float:
        """(largest − smallest) / mean over ranks."""

    def mitigate(self, hotspots: Sequence[Hotspot]) -> Mitigation:
        """What to test next.

        First that holds: no measurement → collect_trace; imbalance > 0.20 → rebalance; overlap < 0.30 while exposed
        → increase overlap; all_to_all with payload → reduce routing; else inspect payload and schedule. Calls of one
        collective are pooled: exposed and payload summed, smallest overlap, largest imbalance. Exposed time of at
        most 5 ms is accepted.
        """

    def exchange_and_compute(
        self, bucket: Tensor, work: Callable[[], Tensor], group: ProcessGroup, *, overlapped: bool
    ) -> tuple[Tensor, Tensor]:
        """(sum of the bucket over the group, what work() returned); overlapped: work runs while the sum is under way."""
