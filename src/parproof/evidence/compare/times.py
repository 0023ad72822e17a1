"""Every timing of both sides: the factor, its bounds against the practical threshold, and what the bounds rest on."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from parproof.cost.statistics import median, percentile
from parproof.evidence.compare import bounds
from parproof.evidence.compare.correctness import wrong_values
from parproof.evidence.compare.pairing import Pair
from parproof.evidence.compare.runs import Facts, level_place

# Worst first.
VERDICTS = ("slower", "missing", "not read", "inconclusive", "faster", "same", "new")
REGRESSIONS = ("slower", "missing")


@dataclass(frozen=True)
class Summary:
    """One side of a timing: medians and P95 of its runs, and how often each repeated."""

    median_s: float
    p95_s: float
    repeats: tuple[int, ...]


@dataclass(frozen=True)
class Comparison:
    """One timing.

    factor     candidate over baseline: above 1 is slower
    bounds     hold for all timings of the comparison together; the verdict rests on them
    interval   95 % bootstrap interval of this one timing, for reading
    tail       the candidate's P95 is worse than chance and threshold explain
    drift      sides whose calls grew slower or faster within a run
    slower_excluded  the upper bound lies within the threshold: faster or the same, whichever
    """

    test: str
    name: str
    experiment: str | None
    level: str | None
    verdict: str
    reason: str
    factor: float | None = None
    bounds: tuple[float, float] | None = None
    interval: tuple[float, float] | None = None
    baseline: Summary | None = None
    candidate: Summary | None = None
    tail: bool = False
    drift: tuple[str, ...] = ()
    slower_excluded: bool = False


@dataclass(frozen=True)
class Times:
    """All timings, worst first.

    alpha_each   the chance of error that each bound was given
    scatter      of the factors of one run a side, where there are enough: the bounds are at least that wide
    """

    compared: tuple[Comparison, ...]
    alpha_each: float
    scatter: float | None

    def of(self, *verdicts: str) -> list[Comparison]:
        """Those with one of these verdicts."""
        return [one for one in self.compared if one.verdict in verdicts]

    @property
    def undecided(self) -> list[Comparison]:
        """Those that may hide a slowdown."""
        return [one for one in self.of("inconclusive", "not read") if not one.slower_excluded]

    @property
    def shift(self) -> float | None:
        """Median of all factors: far from 1, the machine moved and not one operation."""
        factors = [one.factor for one in self.compared if one.factor is not None]
        return statistics.median(factors) if len(factors) > 2 else None


@dataclass(frozen=True)
class _Rule:
    """What all timings of a comparison are judged by."""

    threshold: float
    alpha_each: float
    scatter: float | None


@dataclass(frozen=True)
class _Sides:
    """The calls of one timing: a list for each run of either side."""

    pair: Pair
    name: str
    baseline: tuple[tuple[float, ...], ...]
    candidate: tuple[tuple[float, ...], ...]
    level: str | None

    @property
    def usable(self) -> bool:
        return all((*self.baseline, *self.candidate)) and bool(self.baseline and self.candidate)


def compare(pairs: Sequence[Pair], threshold: float, alpha: float, *, mostly_alike: bool = True) -> Times:
    """Judge every timing of tests that passed.

    threshold      relative change that matters
    alpha          chance of one false «slower» among all, when nothing changed
    mostly_alike   most operations are expected to take the same time, or to change alike
    """
    wrong = wrong_values(pairs)
    sides = [found for pair in pairs for found in _sides(pair)]
    judged = [found for found in sides if found.usable and _wrong(found.pair, wrong) is None]
    alpha_each = bounds.alpha_of_each([bounds.attainable(s.baseline, s.candidate) for s in judged], alpha)
    single = [s for s in judged if len(s.baseline) + len(s.candidate) == 2]
    scatter = (
        bounds.scatter([bounds.factor(s.baseline, s.candidate) for s in single]) if mostly_alike else None
    )
    rule = _Rule(threshold, alpha_each, scatter)
    compared = [_compare(found, wrong, rule) for found in sides]
    return Times(tuple(sorted(compared, key=_badness)), alpha_each, scatter)


def _badness(one: Comparison) -> tuple[int, float, str, str]:
    return VERDICTS.index(one.verdict), -(one.factor or 0.0), one.test, one.name


def _sides(pair: Pair) -> Iterator[_Sides]:
    """Timings of records that passed; a failed or absent record is a matter of correctness, not of time."""
    first, second = ([f for f in side if f and f.status == "ok"] for side in (pair.baseline, pair.candidate))
    if not first or not second:
        return
    level = min((f.level for f in (*first, *second)), key=level_place)
    for name in {timing.name: None for facts in (*first, *second) for timing in facts.times}:
        yield _Sides(pair, name, _calls(first, name), _calls(second, name), level)


def _calls(side: Sequence[Facts], name: str) -> tuple[tuple[float, ...], ...]:
    return tuple(timing.calls_s for facts in side for timing in facts.times if timing.name == name)


def _wrong(pair: Pair, wrong: dict[tuple[str | None, str | None], str]) -> str | None:
    """Why the times of this test may not be read."""
    for facts in (*pair.baseline, *pair.candidate):
        if facts:
            for subject in {facts.subject[1] if facts.subject else None, None}:
                if (facts.experiment, subject) in wrong:
                    return wrong[facts.experiment, subject]
    return None


def _compare(found: _Sides, wrong: dict[tuple[str | None, str | None], str], rule: _Rule) -> Comparison:
    told = found.pair.name, found.name, found.pair.facts.experiment, found.level
    if not found.candidate:
        return Comparison(
            *told, "missing", "measured in the baseline only", baseline=_summary(found.baseline)
        )
    if not found.baseline:
        return Comparison(*told, "new", "measured in the candidate only", candidate=_summary(found.candidate))
    if (why := _wrong(found.pair, wrong)) is not None:
        return Comparison(*told, "not read", f"correctness first: {why}")
    if not found.usable:
        return Comparison(*told, "not read", "a time of 0, or one that no call can take, is no measurement")
    first, second = ([bounds.thinned(run) for run in side] for side in (found.baseline, found.candidate))
    factor = bounds.factor(first, second)
    reach = bounds.bounds(first, second, rule.alpha_each)
    if reach is not None and len(first) + len(second) == 2:
        reach = bounds.widened(reach, factor, rule.scatter, rule.alpha_each)
    verdict, reason = _verdict(factor, reach, rule.threshold)
    return Comparison(
        *told,
        verdict,
        reason or _no_bounds(found, rule.alpha_each),
        factor,
        reach,
        bounds.bootstrap(first, second),
        _summary(found.baseline),
        _summary(found.candidate),
        bounds.tail_is_worse(first, second, rule.threshold, rule.alpha_each),
        tuple(_drift(found, rule)),
        reach is not None and reach[1] <= 1 + rule.threshold,
    )


def _verdict(factor: float, reach: tuple[float, float] | None, threshold: float) -> tuple[str, str]:
    """By where the bounds lie: outside the threshold, inside, or across it. Point and bounds must agree."""
    if reach is None:
        return "inconclusive", ""
    low, high = reach
    limit = 1 + threshold
    if low > limit and factor > limit:
        return "slower", f"at least {low:.3g} times as long"
    if high < 1 / limit and factor < 1 / limit:
        return "faster", f"at most {high:.3g} times as long"
    if 1 / limit <= low and high <= limit:
        return "same", f"within {threshold:.3g} of the baseline"
    told = "faster or the same" if high <= limit else "across the threshold"
    return "inconclusive", f"between {low:.3g} and {high:.3g} times as long: {told}"


def _no_bounds(found: _Sides, alpha_each: float) -> str:
    """Why nothing can be said."""
    if len(found.baseline) + len(found.candidate) > 2:
        return "the runs' medians do not differ at all, or too much for so few runs"
    if bounds.attainable(found.baseline, found.candidate) > alpha_each:
        counts = f"{len(found.baseline[0])} and {len(found.candidate[0])} repeats"
        return f"{counts} are too few: {bounds.repeats_needed(alpha_each)} a side could tell, or several runs a side"
    return "all calls took the same time: the clock is too coarse, or these are no measurements"


def _summary(side: Sequence[Sequence[float]]) -> Summary | None:
    """Of several runs the geometric mean, as in the factor."""
    if not side or not all(side):
        return None
    middle = statistics.geometric_mean([median(run) for run in side])
    tail = statistics.geometric_mean([percentile(run, 95) for run in side])
    return Summary(middle, tail, tuple(len(run) for run in side))


def _drift(found: _Sides, rule: _Rule) -> Iterator[str]:
    """The second half of a run against its first: calls of one run should be alike."""
    for name, side in (("baseline", found.baseline), ("candidate", found.candidate)):
        told = {_half(run, rule) for run in side} & {"slower", "faster"}
        for direction in sorted(told):
            yield f"{name} grows {direction}"


def _half(run: Sequence[float], rule: _Rule) -> str:
    half = len(run) // 2
    if half == 0:
        return ""
    first, second = [bounds.thinned(run[:half])], [bounds.thinned(run[half:])]
    return _verdict(
        bounds.factor(first, second), bounds.bounds(first, second, rule.alpha_each), rule.threshold
    )[0]
