"""Statistics of times measured in ranks: per-call maximum over ranks, median, P95, bootstrap interval. No torch."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from parproof.errors import UsageError

BOOTSTRAP_ROUNDS = 1000


@dataclass(frozen=True)
class Summary:
    """One operation's times in seconds. The interval covers the median of repeats of this very run, no more.

    median_s, p95_s   of the per-call maximum over ranks; P95 by nearest rank (a value that occurred)
    low_s, high_s     95 % bootstrap interval of the median
    slowest_rank      rank that was slowest most often; max_over_mean: mean of maximum over mean of ranks
    """

    num_ranks: int
    num_repeats: int
    median_s: float
    p95_s: float
    min_s: float
    low_s: float
    high_s: float
    slowest_rank: int
    max_over_mean: float


def summarise(samples_s: Sequence[Sequence[float]], *, seed: int = 0) -> Summary:
    """samples_s[rank][repeat]: every rank the same number of repeats, all finite and above 0."""
    calls = per_call_maximum(samples_s)
    low, high = bootstrap_interval(calls, seed=seed)
    by_call = list(zip(*samples_s, strict=True))
    slowest = [max(range(len(call)), key=call.__getitem__) for call in by_call]
    mean = sum(map(sum, by_call)) / (len(by_call) * len(samples_s))
    return Summary(
        num_ranks=len(samples_s),
        num_repeats=len(calls),
        median_s=median(calls),
        p95_s=percentile(calls, 95),
        min_s=min(calls),
        low_s=low,
        high_s=high,
        slowest_rank=max(sorted(set(slowest)), key=slowest.count),
        max_over_mean=sum(calls) / len(calls) / mean,
    )


def per_call_maximum(samples_s: Sequence[Sequence[float]]) -> list[float]:
    """A collective has ended when its slowest rank has: the maximum over ranks of every repeat."""
    if not samples_s or not samples_s[0]:
        raise UsageError("no samples", expected="samples_s[rank][repeat]", where="cost.statistics")
    counts = {len(of_rank) for of_rank in samples_s}
    if len(counts) > 1:
        raise UsageError(
            f"ranks with {sorted(counts)} repeats",
            expected="as many from every rank",
            where="cost.statistics",
        )
    bad = [s for of_rank in samples_s for s in of_rank if not (s > 0 and math.isfinite(s))]
    if bad:
        # An idle rank that reports 0 would pull every mean down.
        raise UsageError(f"a time of {bad[0]} s", expected="finite, above 0", where="cost.statistics")
    return [max(call) for call in zip(*samples_s, strict=True)]


def median(values: Sequence[float]) -> float:
    """Middle value; mean of the two middle ones when there is an even number."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank: the smallest value with at least `percent` of all values at or below it."""
    if not values or not 0 < percent <= 100:
        raise UsageError(f"P{percent} of {len(values)} values", expected="values, and 0 < percent ≤ 100")
    return sorted(values)[max(0, math.ceil(percent / 100 * len(values)) - 1)]


def bootstrap_interval(
    values: Sequence[float], *, coverage: float = 0.95, seed: int = 0, rounds: int = BOOTSTRAP_ROUNDS
) -> tuple[float, float]:
    """Percentile bootstrap of the median. The seed is fixed, so that a report can be computed again."""
    generator = random.Random(seed)
    medians = sorted(median(generator.choices(values, k=len(values))) for _ in range(rounds))
    tail = (1 - coverage) / 2
    return medians[int(tail * rounds)], medians[min(rounds - 1, math.ceil((1 - tail) * rounds) - 1)]
