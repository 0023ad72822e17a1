"""Bounds of the factor between two sides' times, and how many bounds may be read at once. Derived in docs/compare.md.

A side is a list of runs, a run the list of its calls (per-call maximum over ranks, seconds, above 0).
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from parproof.cost.statistics import BOOTSTRAP_ROUNDS, median, percentile

Side = Sequence[Sequence[float]]
Array = npt.NDArray[np.float64]

# Of a longer run every k-th call is used: chosen by place, not by value, so every bound still holds.
MAX_CALLS = 1000
# Two runs of identical code scatter with heavy tails. With these degrees of freedom 132 pairs of real runs on a loaded
# machine alarmed as seldom as they should (docs/compare.md); with a normal quantile one in four did.
SCATTER_FREEDOM = 6
MIN_SCATTERED = 8
# Up to here the distribution is counted out; above it is as good as normal (docs/compare.md).
MAX_EXACT_CALLS = 80


def attainable(baseline: Side, candidate: Side) -> float:
    """Smallest chance of a false alarm at which the two sides could be told apart at all.

    One run a side: 1 / (n + m choose n), all calls of one above all of the other. Several runs: no such limit.
    """
    if len(baseline) + len(candidate) > 2:
        return 0.0
    n, m = len(baseline[0]), len(candidate[0])
    return 1 / math.comb(n + m, n)


def alpha_of_each(attainables: Sequence[float], alpha: float) -> float:
    """alpha / K, so that the chance of one false alarm among all comparisons is at most alpha.

    K counts the comparisons that could ever alarm at alpha / K: one with too few repeats costs the others nothing.
    Holds however the comparisons depend on each other. Source: Tarone 1990, on Bonferroni's inequality.
    """
    ordered = sorted(attainables)
    for number in range(1, len(ordered) + 1):
        if bisect.bisect_right(ordered, alpha / number) <= number:
            return alpha / number
    return alpha


def repeats_needed(alpha_each: float) -> int:
    """Repeats in each of two runs from which a difference could be told at this level."""
    return next(n for n in range(1, 10_000) if 1 / math.comb(2 * n, n) <= alpha_each)


def factor(baseline: Side, candidate: Side) -> float:
    """Median of the candidate over that of the baseline; of several runs the geometric mean of their medians."""
    return math.exp(_centre(candidate) - _centre(baseline))


def bounds(baseline: Side, candidate: Side, alpha_each: float) -> tuple[float, float] | None:
    """Lower and upper bound of the factor, each wrong with a chance of at most `alpha_each`; None: no bound holds.

    One run a side: order statistics of all pairwise ratios (Hodges and Lehmann), exact when the candidate's calls are
    distributed as the baseline's times a factor. It covers the repeats of these two runs.
    Several runs: Student's interval on the logarithms of the runs' medians; it covers the spread between runs too.
    None when repeats are too few for the level, or when nothing spreads: then the clock is too coarse to say.
    """
    if len(baseline) + len(candidate) > 2:
        return _between_runs([_logs(baseline), _logs(candidate)], alpha_each)
    first, second = (np.asarray(thinned(side[0])) for side in (baseline, candidate))
    if min(np.ptp(first), np.ptp(second)) == 0:
        return None
    place = _rank_of_bound(len(first), len(second), alpha_each)
    if place == 0:
        return None
    ratios = np.sort((second[:, None] / first[None, :]).ravel())
    return float(ratios[place - 1]), float(ratios[-place])


def scatter(factors: Sequence[float]) -> float | None:
    """How much the factors of one pair of runs differ among themselves: robust spread of their logarithms.

    Most operations are taken to be unchanged, or changed alike; then this is what two runs differ by themselves. Median
    absolute deviation, scaled to the standard deviation of a normal distribution. None below MIN_SCATTERED factors.
    """
    if len(factors) < MIN_SCATTERED:
        return None
    logs = [math.log(one) for one in factors]
    middle = median(logs)
    return median([abs(one - middle) for one in logs]) / NormalDist().inv_cdf(0.75)


def widened(
    reach: tuple[float, float], centre: float, spread: float | None, alpha_each: float
) -> tuple[float, float]:
    """Bounds from the repeats of one run a side, at least as wide as the scatter between operations makes them."""
    if spread is None:
        return reach
    away = math.exp(min(300.0, student_quantile(SCATTER_FREEDOM, alpha_each) * spread))
    return min(reach[0], centre / away), max(reach[1], centre * away)


def bootstrap(
    baseline: Side, candidate: Side, *, coverage: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap of the factor, over runs and then over repeats. For reading: too narrow with few of either."""
    chance = np.random.default_rng(seed)
    drawn = _resampled(candidate, chance) - _resampled(baseline, chance)
    tail = (1 - coverage) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return math.exp(low), math.exp(high)


def tail_is_worse(baseline: Side, candidate: Side, threshold: float, alpha_each: float) -> bool:
    """Do more of the candidate's calls lie above the baseline's P95 (and the threshold) than chance would put there?

    One run a side: exact, from the number of the candidate's calls that exceed an order statistic of the baseline.
    Several runs: Student's bound on the logarithms of the runs' P95.
    """
    if len(baseline) + len(candidate) > 2:
        tails = [[math.log(percentile(run, 95)) for run in side] for side in (baseline, candidate)]
        found = _between_runs(tails, alpha_each)
        return found is not None and found[0] > 1 + threshold
    n, m = len(baseline[0]), len(candidate[0])
    place = math.ceil(0.95 * n)
    limit = sorted(baseline[0])[place - 1] * (1 + threshold)
    below = sum(call <= limit for call in candidate[0])
    orders = sum(math.comb(place - 1 + j, j) * math.comb(n - place + m - j, m - j) for j in range(below + 1))
    return orders / math.comb(n + m, n) <= alpha_each


def thinned(calls: Sequence[float]) -> Sequence[float]:
    """At most MAX_CALLS of them, evenly spread."""
    return calls[:: -(-len(calls) // MAX_CALLS)]


def student_quantile(freedom: int, alpha: float) -> float:
    """t with P(T > t) = alpha, for whole degrees of freedom; by bisection of the closed form."""
    low, high = 0.0, 1.0
    while _student_tail(high, freedom) > alpha:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_tail(middle, freedom) > alpha else (low, middle)
    return high


def _student_tail(t: float, freedom: int) -> float:
    """P(T > t), t ≥ 0. Source: Abramowitz and Stegun 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for step in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (step - 1) / step
        total += term
    inside = math.sin(angle) * total
    return (1 - ((angle + inside) * 2 / math.pi if odd else inside)) / 2


def _between_runs(logs: Sequence[Sequence[float]], alpha_each: float) -> tuple[float, float] | None:
    """Equal spread on both sides is assumed: it holds when nothing changed, and lets one side have a single run."""
    means = [sum(side) / len(side) for side in logs]
    freedom = sum(map(len, logs)) - 2
    squares = sum((value - mean) ** 2 for side, mean in zip(logs, means, strict=True) for value in side)
    if squares == 0:
        return None
    error = math.sqrt(squares / freedom * sum(1 / len(side) for side in logs))
    centre, reach = means[1] - means[0], student_quantile(freedom, alpha_each) * error
    # Beyond this both bounds say nothing, and exp would overflow.
    return (math.exp(centre - reach), math.exp(centre + reach)) if reach < 300 else None


def _centre(side: Side) -> float:
    logs = _logs(side)
    return sum(logs) / len(logs)


def _logs(side: Side) -> list[float]:
    return [math.log(median(run)) for run in side]


@functools.cache
def _rank_of_bound(n: int, m: int, alpha_each: float) -> int:
    """k such that the k-th smallest of n · m ratios exceeds the true factor with a chance of at most alpha_each; 0: none."""
    if 1 / math.comb(n + m, n) > alpha_each:
        return 0
    if max(n, m) <= MAX_EXACT_CALLS:
        return int((np.cumsum(_orders(n, m)) <= alpha_each).sum())
    spread = math.sqrt(n * m * (n + m + 1) / 12)
    return max(0, math.floor(n * m / 2 - 0.5 + NormalDist().inv_cdf(alpha_each) * spread))


def _orders(n: int, m: int) -> Array:
    """P(U = u), u = 0 … n·m: U counts the pairs whose order is turned, all interleavings equally likely.

    The largest call is one of the n with chance n / (n + m); then it lies above all m.
    """
    row: list[Array] = [np.ones(1) for _ in range(m + 1)]
    for i in range(1, n + 1):
        above = row
        row = [np.ones(1)]
        for j in range(1, m + 1):
            found = np.zeros(i * j + 1)
            found[j:] += above[j] * (i / (i + j))
            found[: i * (j - 1) + 1] += row[j - 1] * (j / (i + j))
            row.append(found)
    return row[m]


def _resampled(side: Side, chance: np.random.Generator) -> Array:
    """The centre of `BOOTSTRAP_ROUNDS` resampled sides: runs drawn again, and in each its calls."""
    num_runs = len(side)
    chosen = chance.integers(num_runs, size=(num_runs, BOOTSTRAP_ROUNDS))
    total = np.zeros(BOOTSTRAP_ROUNDS)
    for slot in range(num_runs):
        for number, run in enumerate(side):
            calls = np.asarray(thinned(run))
            rounds = np.flatnonzero(chosen[slot] == number)
            if len(rounds):
                drawn = calls[chance.integers(len(calls), size=(len(rounds), len(calls)))]
                total[rounds] += np.log(np.median(drawn, axis=1))
    return total / num_runs
