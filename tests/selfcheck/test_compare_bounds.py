"""The statistics of a comparison: counted out, and held against simulated runs of which the truth is known."""

import itertools
import math
import random

import pytest

from parproof.evidence.compare import bounds as stats
from parproof.evidence.compare.times import _verdict

pytestmark = pytest.mark.selfcheck
NUM_TIMINGS, ALPHA = 50, 0.05


def calls(chance, num_repeats, scale=1.0, spread=0.05):
    """One run: log-normal times, and one call in ten held up by a neighbour."""
    busy = [chance.uniform(1.3, 3) if chance.random() < 0.1 else 1.0 for _ in range(num_repeats)]
    return [scale * held * chance.lognormvariate(0, spread) for held in busy]


def gate(sides, threshold, *, scattered):
    """Verdicts on all timings, as a comparison gives them; `scattered`: with the scatter between operations."""
    each = stats.alpha_of_each([stats.attainable(*side) for side in sides], ALPHA)
    factors = [stats.factor(*side) for side in sides]
    spread = stats.scatter(factors) if scattered else None
    found = [stats.bounds(*side, each) for side in sides]
    wide = [reach and stats.widened(reach, f, spread, each) for f, reach in zip(factors, found, strict=True)]
    return [_verdict(f, reach, threshold)[0] for f, reach in zip(factors, wide, strict=True)]


def simulated(chance, num_runs, num_repeats, *, between=0.0, slow=1.0):
    """(baseline, candidate) of each timing; the first of the candidate's takes `slow` times as long."""

    def side(scale):
        return [
            calls(chance, num_repeats, scale * chance.lognormvariate(0, between)) for _ in range(num_runs)
        ]

    return [(side(1.0), side(slow if place == 0 else 1.0)) for place in range(NUM_TIMINGS)]


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 3), (2, 5), (4, 3)])
def test_the_bound_is_wrong_as_often_as_all_orders_say(n, m):
    """Every interleaving of the calls is equally likely: count those in which the lower bound lies above the truth."""
    for alpha in (0.05, 0.1, 0.2, 0.34):
        wrong = 0
        for places in itertools.combinations(range(n + m), n):
            first = [1.01**place for place in places]
            second = [1.01**place for place in range(n + m) if place not in places]
            found = stats.bounds([first], [second], alpha)
            wrong += found is not None and found[0] > 1
        assert wrong / math.comb(n + m, n) <= alpha
        assert (wrong > 0) == (alpha >= 1 / math.comb(n + m, n))


def test_too_few_repeats_give_no_bound_and_one_more_does():
    """Six repeats a side cannot speak at 1/1000: 1 of 924 orders is the rarest."""
    low, high = [1 + i / 100 for i in range(7)], [9 + i / 100 for i in range(7)]
    assert stats.bounds([low[:6]], [high[:6]], 0.001) is None
    assert stats.bounds([low], [high], 0.001)[0] > 8
    assert stats.repeats_needed(0.001) == 7


def test_a_clock_that_shows_no_spread_gives_no_bound():
    """Equal ticks are no proof of equal times."""
    assert stats.bounds([[1.0] * 30], [[1.0] * 30], 0.05) is None
    assert stats.bounds([[1.0] * 30] * 3, [[1.0] * 30] * 3, 0.05) is None


def test_timings_that_could_never_alarm_cost_the_others_nothing():
    """Tarone: of 40, the 30 with three repeats do not count; without them six repeats are enough."""
    few, enough = 1 / math.comb(6, 3), 1 / math.comb(12, 6)
    assert stats.alpha_of_each([few] * 30 + [enough] * 10, 0.05) == pytest.approx(0.05 / 10)
    assert stats.alpha_of_each([0.0] * 50, 0.05) == pytest.approx(0.001)
    assert stats.alpha_of_each([], 0.05) == 0.05


def test_the_distribution_above_the_exact_size_is_not_less_careful():
    """The normal approximation gives a bound no nearer than counting does."""
    for alpha in (1e-2, 1e-3, 1e-4):
        exact = stats._rank_of_bound(60, 80, alpha)
        spread = math.sqrt(60 * 80 * 141 / 12)
        near = math.floor(2400 - 0.5 + stats.NormalDist().inv_cdf(alpha) * spread)
        assert 0.97 * exact < near <= exact
    assert stats._rank_of_bound(200, 200, 1e-3) > 0


@pytest.mark.parametrize(
    ("freedom", "alpha", "expected"),
    [(1, 0.025, 12.706), (2, 0.025, 4.3027), (3, 0.025, 3.1824), (4, 0.001, 7.1732), (30, 0.05, 1.6973)],
)
def test_student_quantiles_are_those_of_the_tables(freedom, alpha, expected):
    """Odd and even degrees of freedom have their own closed form."""
    assert stats.student_quantile(freedom, alpha) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("num_runs", "between"), [(1, 0.0), (3, 0.03), (5, 0.1)])
def test_a_gate_over_fifty_timings_of_identical_code_alarms_no_more_often_than_stated(num_runs, between):
    """Threshold 0, so that every alarm is the bounds' own: at most 5 % of 200 gates, but for chance (3 sigma)."""
    chance, num_gates = random.Random(7), 200
    alarms = sum(
        "slower" in gate(simulated(chance, num_runs, 10, between=between), 0.0, scattered=False)
        for _ in range(num_gates)
    )
    assert alarms / num_gates <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / num_gates)
    assert alarms > 0, "a gate that never alarms at threshold 0 shows nothing"


@pytest.mark.parametrize(
    ("num_runs", "num_repeats", "between"), [(1, 30, 0.0), (5, 10, 0.02)], ids=["one_run", "five_runs"]
)
def test_a_slowdown_of_a_fifth_in_one_of_fifty_timings_is_found(num_runs, num_repeats, between):
    """30 repeats in one run a side, or 10 in each of 5 runs: in at least 4 of 5 comparisons, at a threshold of 5 %."""
    chance = random.Random(11)
    verdicts = [
        gate(
            simulated(chance, num_runs, num_repeats, between=between, slow=1.2),
            0.05,
            scattered=num_runs == 1,
        )
        for _ in range(60)
    ]
    assert sum(found[0] == "slower" for found in verdicts) / len(verdicts) >= 0.8
    assert not any("slower" in found[1:] for found in verdicts)


def test_runs_that_differ_by_themselves_alarm_when_one_is_taken_for_all():
    """Why several runs a side are asked for, and what the scatter between operations is for."""
    chance, plain, scattered = random.Random(5), 0, 0
    for _ in range(40):
        sides = simulated(chance, 1, 20, between=0.05)
        plain += "slower" in gate(sides, 0.05, scattered=False)
        scattered += "slower" in gate(sides, 0.05, scattered=True)
    assert plain > 30
    assert scattered <= 4


def test_the_scatter_is_robust_and_needs_enough_timings():
    """One operation that is ten times as slow does not hide itself."""
    factors = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 10.0]
    assert stats.scatter(factors) < 0.03
    assert stats.scatter(factors[:-1]) is None


def test_the_tail_is_judged_where_the_median_stands_still():
    """Every third call of the candidate takes twice as long."""
    chance = random.Random(2)
    base = [[chance.lognormvariate(0, 0.02) for _ in range(60)]]
    held = [[2 * call if place % 3 == 0 else call for place, call in enumerate(base[0])]]
    assert stats.tail_is_worse(base, held, 0.05, 0.001)
    assert not stats.tail_is_worse(base, base, 0.05, 0.001)


def test_the_bootstrap_interval_holds_the_factor_and_comes_out_again():
    """Over runs and repeats; the seed is fixed."""
    chance = random.Random(1)
    base, other = ([calls(chance, 20, scale) for _ in range(3)] for scale in (1.0, 1.5))
    low, high = stats.bootstrap(base, other)
    assert low < stats.factor(base, other) < high
    assert (low, high) == stats.bootstrap(base, other)
    assert len(stats.thinned(range(10**6))) == stats.MAX_CALLS
