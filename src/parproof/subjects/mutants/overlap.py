"""Mutants of PAR-OVERLAP-HOTSPOT: the reference with one lie each (the catalogue says which)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from parproof.errors import InvalidPlan
from parproof.subjects.overlap_protocol import Communication, Hotspot, Interval, Mitigation, TimelineSummary
from parproof.subjects.protocol import Subject
from parproof.subjects.reference.overlap import Overlap

# -- one rank's time line --------------------------------------------------------------------------------------


class DoubleCounts(Overlap):
    def union(self, intervals: Iterable[Interval]) -> list[Interval]:
        return sorted(intervals)


class LastEndWins(Overlap):
    def union(self, intervals: Iterable[Interval]) -> list[Interval]:
        merged: list[Interval] = []
        for start, end in sorted(intervals):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        return merged


class NegativeOverlap(Overlap):
    def covered(self, interval: Interval, busy: Sequence[Interval]) -> float:
        return sum(min(interval[1], end) - max(interval[0], start) for start, end in busy)


class OverlapFromLengths(Overlap):
    def covered(self, interval: Interval, busy: Sequence[Interval]) -> float:
        return min(interval[1] - interval[0], sum(end - start for start, end in busy))


class TwoOrigins(Overlap):
    def summarize(
        self, communication: Sequence[Communication], compute: Sequence[Interval]
    ) -> TimelineSummary:
        first = min((call.start_ms for call in communication), default=0.0)
        begun = min((start for start, _ in compute), default=0.0)
        return super().summarize(
            [
                dataclasses.replace(c, start_ms=c.start_ms - first, end_ms=c.end_ms - first)
                for c in communication
            ],
            [(start - begun, end - begun) for start, end in compute],
        )


class HottestByTotal(Overlap):
    def hottest(self, by_op: dict[str, Any]) -> str | None:
        return max(by_op, key=lambda op: by_op[op].time_ms, default=None)


class RatioOverCompute(Overlap):
    def summarize(
        self, communication: Sequence[Communication], compute: Sequence[Interval]
    ) -> TimelineSummary:
        made = super().summarize(communication, compute)
        busy = sum(end - start for start, end in self.union(compute))
        return dataclasses.replace(made, overlap_ratio=made.overlap_ms / busy if busy else 0.0)


class KeepsLastPayload(Overlap):
    def summarize(
        self, communication: Sequence[Communication], compute: Sequence[Interval]
    ) -> TimelineSummary:
        made = super().summarize(communication, compute)
        last = {call.op: call.payload_bytes for call in communication}
        by_op = {op: dataclasses.replace(s, payload_bytes=last[op]) for op, s in made.by_op.items()}
        return dataclasses.replace(made, by_op=by_op)


class ImbalanceOverLargest(Overlap):
    def rank_imbalance(self, elapsed_ms: Sequence[float]) -> float:
        return (max(elapsed_ms) - min(elapsed_ms)) / max(elapsed_ms) if max(elapsed_ms) else 0.0


class AcceptsBackwards(Overlap):
    def summarize(
        self, communication: Sequence[Communication], compute: Sequence[Interval]
    ) -> TimelineSummary:
        try:
            return super().summarize(communication, compute)
        except InvalidPlan:
            return super().summarize([], [])


# -- advice ----------------------------------------------------------------------------------------------------


class InclusiveImbalance(Overlap):
    def action(self, spot: Hotspot) -> str:
        return "rebalance_ranks_or_experts" if spot.rank_imbalance >= 0.20 else super().action(spot)


class InclusiveOverlap(Overlap):
    min_overlap = 0.30 + 1e-12


class StrictAcceptance(Overlap):
    accepted_exposed_ms = 5.0 - 1e-12


class OverlapFirst(Overlap):
    def action(self, spot: Hotspot) -> str:
        return (
            super().action(dataclasses.replace(spot, rank_imbalance=0.0))
            if spot.overlap_ratio < 0.30
            else super().action(spot)
        )


class LowOverlapIsEnough(Overlap):
    def action(self, spot: Hotspot) -> str:
        low = spot.rank_imbalance <= 0.20 and spot.overlap_ratio < 0.30
        return "increase_overlap_or_delay_sync" if low else super().action(spot)


class RoutesWithoutPayload(Overlap):
    def action(self, spot: Hotspot) -> str:
        return super().action(dataclasses.replace(spot, payload_bytes=1))


class MeanOverlap(Overlap):
    def pooled(self, name: str, spots: Sequence[Hotspot]) -> Hotspot:
        mean = sum(s.overlap_ratio for s in spots) / len(spots)
        return dataclasses.replace(super().pooled(name, spots), overlap_ratio=mean)


class FirstImbalance(Overlap):
    def pooled(self, name: str, spots: Sequence[Hotspot]) -> Hotspot:
        return dataclasses.replace(super().pooled(name, spots), rank_imbalance=spots[0].rank_imbalance)


class LargestCallOnly(Overlap):
    def pooled(self, name: str, spots: Sequence[Hotspot]) -> Hotspot:
        return dataclasses.replace(super().pooled(name, spots), exposed_ms=max(s.exposed_ms for s in spots))


class AcceptsNothingMeasured(Overlap):
    def mitigate(self, hotspots: Sequence[Hotspot]) -> Mitigation:
        return super().mitigate(hotspots) if hotspots else Mitigation(None, "none", (), "accept")


class DecidesWithoutMeasurements(Overlap):
    def mitigate(self, hotspots: Sequence[Hotspot]) -> Mitigation:
        return dataclasses.replace(super().mitigate(hotspots), measure=())


# -- the real thing --------------------------------------------------------------------------------------------


class WorksFirst(Overlap):
    def exchange_and_compute(
        self, bucket: Tensor, work: Callable[[], Tensor], group: Any, *, overlapped: bool
    ) -> tuple[Tensor, Tensor]:
        computed = work()
        return super().exchange_and_compute(bucket, lambda: computed, group, overlapped=overlapped)


class WaitsFirst(Overlap):
    def exchange_and_compute(
        self, bucket: Tensor, work: Callable[[], Tensor], group: Any, *, overlapped: bool
    ) -> tuple[Tensor, Tensor]:
        return super().exchange_and_compute(bucket, work, group, overlapped=False)


class NeverSerial(Overlap):
    def exchange_and_compute(
        self, bucket: Tensor, work: Callable[[], Tensor], group: Any, *, overlapped: bool
    ) -> tuple[Tensor, Tensor]:
        return super().exchange_and_compute(bucket, work, group, overlapped=True)


class NeverWaits(Overlap):
    def exchange_and_compute(
        self, bucket: Tensor, work: Callable[[], Tensor], group: Any, *, overlapped: bool
    ) -> tuple[Tensor, Tensor]:
        total = bucket.clone()
        handle = dist.all_reduce(total, group=group, async_op=True)
        computed = work()
        seen = total.clone()
        assert handle is not None
        handle.wait()
        return seen, computed


class ReducesTwice(Overlap):
    def exchange_and_compute(
        self, bucket: Tensor, work: Callable[[], Tensor], group: Any, *, overlapped: bool
    ) -> tuple[Tensor, Tensor]:
        made = super().exchange_and_compute(bucket, work, group, overlapped=overlapped)
        dist.all_reduce(bucket.clone(), group=group)
        return made


class GathersAndSums(Overlap):
    def exchange_and_compute(
        self, bucket: Tensor, work: Callable[[], Tensor], group: Any, *, overlapped: bool
    ) -> tuple[Tensor, Tensor]:
        parts = [torch.empty_like(bucket) for _ in range(group.size())]
        dist.all_gather(parts, bucket, group=group)
        return torch.stack(parts).sum(0), work()


LIES = SimpleNamespace(
    double_counts=DoubleCounts,
    last_end_wins=LastEndWins,
    negative_overlap=NegativeOverlap,
    overlap_from_lengths=OverlapFromLengths,
    two_origins=TwoOrigins,
    hottest_by_total=HottestByTotal,
    ratio_over_compute=RatioOverCompute,
    keeps_last_payload=KeepsLastPayload,
    imbalance_over_largest=ImbalanceOverLargest,
    accepts_backwards=AcceptsBackwards,
    inclusive_imbalance=InclusiveImbalance,
    inclusive_overlap=InclusiveOverlap,
    strict_acceptance=StrictAcceptance,
    overlap_first=OverlapFirst,
    low_overlap_is_enough=LowOverlapIsEnough,
    routes_without_payload=RoutesWithoutPayload,
    mean_overlap=MeanOverlap,
    first_imbalance=FirstImbalance,
    largest_call_only=LargestCallOnly,
    accepts_nothing_measured=AcceptsNothingMeasured,
    decides_without_measurements=DecidesWithoutMeasurements,
    works_first=WorksFirst,
    waits_first=WaitsFirst,
    never_serial=NeverSerial,
    never_waits=NeverWaits,
    reduces_twice=ReducesTwice,
    gathers_and_sums=GathersAndSums,
)

# One subject a lie, by the names of the catalogue.
globals().update(
    {name: Subject(name=name, mechanisms={"overlap": f"{__name__}:LIES.{name}"}) for name in vars(LIES)}
)
