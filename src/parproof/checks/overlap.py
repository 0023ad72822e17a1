"""Are the intervals of a trace those of the run, and is a subject's reading of them a count of covered time?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parproof.cost.trace import TraceIntervals, common_origin_ns
from parproof.ledger.rows import Row
from parproof.oracles import overlap as oracle
from parproof.ranks.run import Run
from parproof.subjects.overlap_protocol import Communication, Hotspot, Overlap

# Intervals are in whole ns, and a subject is given them in ms.
_HALF_A_NS_IN_MS = 0.5e-6
# Phase of the ledger while the profiler runs.
TRACED = "traced"


def assert_order(marks: Sequence[dict[str, float]], *, overlapped: bool) -> None:
    """The others enter the sum after rank 0 has worked, or rank 0 works after they have entered."""
    entered = min(m["issued"] for m in marks[1:])
    if overlapped:
        assert marks[0]["work_end"] <= entered, "order: the others entered before rank 0 had worked"
    else:
        assert marks[0]["work_start"] >= entered, "order: rank 0 worked before the others had entered the sum"


def assert_calls(
    read: TraceIntervals, rows: Sequence[Row], expected: Sequence[str], pieces_of_work: int, *, where: str
) -> None:
    """The calls of the trace are those of the ledger, and so are the pieces of work."""
    ops, seen = [op for op, *_ in read.communication], [row.op for row in rows]
    assert ops == seen == list(expected), f"{where}: calls {ops} in the trace, {seen} in the ledger"
    found = len(read.compute)
    assert found == pieces_of_work, f"{where}: {found} pieces of work in the trace, expected {pieces_of_work}"


def assert_as_in_memory(read: TraceIntervals, events: Sequence[tuple[str, int, int]], *, where: str) -> None:
    """Every start and end of the file is the one that the profiler held, counted from the first start of either."""
    reopened = sorted([*read.compute, *(call[1:] for call in read.communication)])
    held = sorted((start, end) for _, start, end in events)
    found, expected = (
        [(start - times[0][0], end - times[0][0]) for start, end in times] for times in (reopened, held)
    )
    assert found == expected, f"{where}: intervals {found} ns, in memory {expected}"


def assert_between_the_moments(
    reads: Sequence[TraceIntervals], moments: Sequence[Sequence[dict[str, int]]], *, overlapped: bool
) -> None:
    """Each start and end lies between moments that the rank took on its own clock just before and after.

    Nobody's sum ends before all have entered it, so moments of one rank bound intervals of the others as well.
    """
    for read in reads:
        sums = [call[1:] for call in read.communication if call[0] == "all_reduce"]
        for step, said in enumerate(moments[read.rank]):
            work, (start, end) = read.compute[2 * step + 1], sums[step]
            all_entered = max(rank[step]["issued"] for rank in moments)
            orders = {
                "sum": (said["issued"], start, said.get("under_way", end)),
                "end of the sum": (
                    all_entered,
                    end,
                    said["returned" if overlapped else "before_work"],
                ),
                "work": (said["before_work"], work[0], said["work_begun"]),
                "end of the work": (said["work_ending"], work[1], said["after_work"]),
            }
            for what, order in orders.items():
                assert list(order) == sorted(order), (
                    f"rank {read.rank}, step {step}: {what} at {order[1] - order[0]} ns, expected 0 to "
                    f"{order[2] - order[0]}"
                )


def assert_only_overlapped_overlaps(reads: Sequence[TraceIntervals], *, overlapped: bool) -> None:
    """Serial: no work meets its sum, on any rank. Overlapped: all of rank 0's work is done while its sum is under way."""
    for read in reads if not overlapped else reads[:1]:
        sums = [call[1:] for call in read.communication if call[0] == "all_reduce"]
        for step, (start, end) in enumerate(sums):
            work = read.compute[2 * step + 1]
            covered = oracle.count_ns(*work, [(start, end)])[1]
            expected = work[1] - work[0] if overlapped else 0
            assert covered == expected, (
                f"rank {read.rank}, step {step}: {covered} ns of work beside its sum, expected {expected}"
            )


@dataclass(frozen=True)
class Count:
    """What counting covered ns makes of one rank's intervals; by_op: op → (calls, ns, exposed ns, bytes)."""

    total_ns: int
    exposed_ns: int
    busy_ns: int
    by_op: dict[str, tuple[int, int, int, int]]

    @property
    def ratio(self) -> float:
        """Covered communication over communication."""
        return (self.total_ns - self.exposed_ns) / self.total_ns


def counted(read: TraceIntervals, payloads: Sequence[int]) -> Count:
    """payloads: bytes of each communication, in its order."""
    by_op: dict[str, tuple[int, int, int, int]] = {}
    for (op, start, end), size in zip(read.communication, payloads, strict=True):
        length, covered = oracle.count_ns(start, end, read.compute)
        calls, total, exposed, sizes = by_op.get(op, (0, 0, 0, 0))
        by_op[op] = calls + 1, total + length, exposed + length - covered, sizes + size
    total, exposed = (sum(values[column] for values in by_op.values()) for column in (1, 2))
    whole = min(a for a, _ in read.compute), max(b for _, b in read.compute)
    return Count(total, exposed, oracle.count_ns(*whole, read.compute)[1], by_op)


def payloads(run: Run) -> list[list[int]]:
    """[rank]: bytes of each traced call, in its order, as the ledger saw them."""
    return [[row.in_bytes for row in rows if row.phase == TRACED] for rows in run.ledgers]


def counts(run: Run, reads: Sequence[TraceIntervals]) -> list[Count]:
    """Of every rank."""
    return [counted(read, sizes) for read, sizes in zip(reads, payloads(run), strict=True)]


def assert_summary(
    analyst: Overlap, read: TraceIntervals, payloads: Sequence[int], origin_ns: int, *, where: str
) -> None:
    """A subject's summary of measured intervals is the count of covered ns."""
    calls = [
        Communication(op, *_in_ms((start, end), origin_ns), size)
        for (op, start, end), size in zip(read.communication, payloads, strict=True)
    ]
    found = analyst.summarize(calls, [_in_ms(span, origin_ns) for span in read.compute])
    count = counted(read, payloads)
    by_op = {op: (s.count, s.time_ms, s.exposed_ms, s.payload_bytes) for op, s in found.by_op.items()}
    assert by_op.keys() == count.by_op.keys(), f"{where}: measured {by_op}, counted {count.by_op}"
    times = [found.total_ms, found.exposed_ms, found.overlap_ms]
    expected = [count.total_ns, count.exposed_ns, count.total_ns - count.exposed_ns]
    for op, (calls_of_op, total, exposed, sizes) in count.by_op.items():
        times += by_op[op][1:3]
        expected += total, exposed
        seen = by_op[op][0], by_op[op][3]
        assert seen == (calls_of_op, sizes), f"{where}: {op} measured (calls, bytes) {seen}"
    near = [abs(ms - ns / 1e6) <= _HALF_A_NS_IN_MS for ms, ns in zip(times, expected, strict=True)]
    assert all(near), f"{where}: measured {times} ms, counted {expected} ns"
    slack = _HALF_A_NS_IN_MS * 1e6 / count.total_ns
    assert abs(found.overlap_ratio - count.ratio) <= slack, (
        f"{where}: measured overlap ratio {found.overlap_ratio}, counted {count.ratio}"
    )
    most = max(exposed for _, _, exposed, _ in count.by_op.values())
    hottest = [op for op, (_, _, exposed, _) in count.by_op.items() if exposed == most]
    assert found.hotspot in hottest, f"{where}: measured hotspot {found.hotspot}, counted {count.by_op}"


def assert_imbalance(analyst: Overlap, reads: Sequence[TraceIntervals], origin_ns: int) -> float:
    """Of the time from the first start over all ranks to each rank's last end."""
    elapsed = _elapsed_ns(reads, origin_ns)
    found, expected = analyst.rank_imbalance([ns / 1e6 for ns in elapsed]), oracle.imbalance(elapsed)
    # A handful of roundings, each by less than one part in 2⁵².
    assert abs(found - expected) <= 1e-12, f"measured imbalance {found}, expected {expected}"
    return expected


def assert_advice(analyst: Overlap, counts: Sequence[Count], imbalance: float) -> str:
    """Over all ranks the sum is what nothing covers: work covers every broadcast whole. Returns the advice."""
    spots = [
        Hotspot(op, exposed / 1e6, sizes, (total - exposed) / total, imbalance)
        for count in counts
        for op, (_, total, exposed, sizes) in count.by_op.items()
    ]
    sums = [spot for spot in spots if spot.collective == "all_reduce"]
    exposed_ms, sizes = sum(s.exposed_ms for s in sums), sum(s.payload_bytes for s in sums)
    ratio = min(spot.overlap_ratio for spot in sums)
    expected = "all_reduce", oracle.first_action("all_reduce", exposed_ms, sizes, ratio, imbalance)
    found = analyst.mitigate(spots)
    assert (found.priority, found.action) == expected, f"measured: {found}, expected {expected}"
    return found.action


def figures(counts: Sequence[Count]) -> dict[str, float]:
    """Public figures of a record: those of the slowest rank, since a step lasts as long."""
    return {
        "compute_s": max(count.busy_ns for count in counts) / 1e9,
        "communication_s": max(count.total_ns for count in counts) / 1e9,
        "exposed_s": max(count.exposed_ns for count in counts) / 1e9,
    }


def measurements(counts: Sequence[Count], reads: Sequence[TraceIntervals]) -> dict[str, Any]:
    """The same of every rank, what part of its communication work covers, and how far apart the ranks' ends are."""
    exposed: Counter[str] = Counter()
    for count in counts:
        exposed.update({op: of_op[2] for op, of_op in count.by_op.items()})
    return {
        "communication_s_by_rank": [count.total_ns / 1e9 for count in counts],
        "exposed_s_by_rank": [count.exposed_ns / 1e9 for count in counts],
        "overlap_ratio_by_rank": [count.ratio for count in counts],
        "rank_imbalance_ratio": oracle.imbalance(_elapsed_ns(reads, common_origin_ns(reads))),
        "hotspot": exposed.most_common(1)[0][0],
    }


def _elapsed_ns(reads: Sequence[TraceIntervals], origin_ns: int) -> list[int]:
    ends = [[*(c[2] for c in read.communication), *(c[1] for c in read.compute)] for read in reads]
    return [max(of_rank) - origin_ns for of_rank in ends]


def _in_ms(interval: tuple[int, int], origin_ns: int) -> tuple[float, float]:
    return (interval[0] - origin_ns) / 1e6, (interval[1] - origin_ns) / 1e6
