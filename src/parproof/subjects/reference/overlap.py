"""Exposed communication from first principles: unions of intervals, then the first rule that holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch.distributed as dist
from torch import Tensor

from parproof.errors import InvalidPlan
from parproof.subjects.overlap_protocol import (
    MEASURE,
    Communication,
    Hotspot,
    Interval,
    Mitigation,
    OpSummary,
    TimelineSummary,
)


class Overlap:
    """Each rule is a method or a number, so that a variant can change exactly one."""

    max_imbalance = 0.20
    min_overlap = 0.30
    accepted_exposed_ms = 5.0

    # -- one rank's time line --------------------------------------------------------------------------------

    def summarize(
        self, communication: Sequence[Communication], compute: Sequence[Interval]
    ) -> TimelineSummary:
        """See the protocol."""
        for start, end in [*compute, *((c.start_ms, c.end_ms) for c in communication)]:
            if end < start:
                raise InvalidPlan(
                    f"interval from {start} to {end} ms", expected="an end not before its start"
                )
        busy = self.union(compute)
        by_op: dict[str, OpSummary] = {}
        for call in communication:
            before = by_op.get(call.op, OpSummary(0, 0.0, 0, 0.0))
            length = call.end_ms - call.start_ms
            by_op[call.op] = OpSummary(
                before.count + 1,
                before.time_ms + length,
                before.payload_bytes + call.payload_bytes,
                before.exposed_ms + length - self.covered((call.start_ms, call.end_ms), busy),
            )
        total = sum(op.time_ms for op in by_op.values())
        exposed = sum(op.exposed_ms for op in by_op.values())
        ratio = (total - exposed) / total if total > 0 else 0.0
        return TimelineSummary(total, total - exposed, exposed, ratio, by_op, self.hottest(by_op))

    def union(self, intervals: Iterable[Interval]) -> list[Interval]:
        """Disjoint intervals that cover the same points."""
        merged: list[Interval] = []
        for start, end in sorted(intervals):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end))
            else:
                merged.append((start, end))
        return merged

    def covered(self, interval: Interval, busy: Sequence[Interval]) -> float:
        """How much of the interval the disjoint ones cover."""
        return sum(max(0.0, min(interval[1], end) - max(interval[0], start)) for start, end in busy)

    def hottest(self, by_op: dict[str, OpSummary]) -> str | None:
        """Largest exposed time; the first seen wins a tie."""
        return max(by_op, key=lambda op: by_op[op].exposed_ms, default=None)

    # -- over ranks ------------------------------------------------------------------------------------------

    def rank_imbalance(self, elapsed_ms: Sequence[float]) -> float:
        """See the protocol."""
        mean = sum(elapsed_ms) / len(elapsed_ms)
        return (max(elapsed_ms) - min(elapsed_ms)) / mean if mean else 0.0

    def mitigate(self, hotspots: Sequence[Hotspot]) -> Mitigation:
        """See the protocol."""
        if not hotspots:
            return Mitigation(None, "collect_trace", MEASURE["collect_trace"], "collect_more_evidence")
        pooled = self.pool(hotspots)
        worst = max(pooled, key=lambda spot: spot.exposed_ms)
        action = self.action(worst)
        decision = "accept" if worst.exposed_ms <= self.accepted_exposed_ms else "tune"
        return Mitigation(worst.collective, action, MEASURE[action], decision)

    def pool(self, hotspots: Sequence[Hotspot]) -> list[Hotspot]:
        """One entry a collective."""
        names = dict.fromkeys(spot.collective for spot in hotspots)
        return [self.pooled(name, [s for s in hotspots if s.collective == name]) for name in names]

    def pooled(self, name: str, spots: Sequence[Hotspot]) -> Hotspot:
        """Sums of time and bytes, the worst of the ratios."""
        return Hotspot(
            name,
            sum(s.exposed_ms for s in spots),
            sum(s.payload_bytes for s in spots),
            min(s.overlap_ratio for s in spots),
            max(s.rank_imbalance for s in spots),
        )

    def action(self, spot: Hotspot) -> str:
        """The first rule that holds."""
        if spot.rank_imbalance > self.max_imbalance:
            return "rebalance_ranks_or_experts"
        if spot.overlap_ratio < self.min_overlap and spot.exposed_ms > 0:
            return "increase_overlap_or_delay_sync"
        if spot.collective == "all_to_all" and spot.payload_bytes > 0:
            return "reduce_routing_traffic"
        return "inspect_collective_payload_and_schedule"

    # -- the real thing --------------------------------------------------------------------------------------

    def exchange_and_compute(
        self, bucket: Tensor, work: Callable[[], Tensor], group: dist.ProcessGroup, *, overlapped: bool
    ) -> tuple[Tensor, Tensor]:
        """See the protocol."""
        total = bucket.clone()
        handle = dist.all_reduce(total, group=group, async_op=True)
        assert handle is not None
        if not overlapped:
            handle.wait()
        computed = work()
        if overlapped:
            handle.wait()
        return total, computed
