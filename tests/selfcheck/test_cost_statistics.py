"""Statistics of rank times, by definition and against numbers worked out by hand."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parproof import programs
from parproof.cost.statistics import bootstrap_interval, median, per_call_maximum, percentile, summarise
from parproof.errors import UsageError

pytestmark = pytest.mark.selfcheck
times = st.lists(st.floats(1e-6, 10), min_size=1, max_size=40)


def test_the_maximum_is_taken_per_call_and_not_per_rank():
    """Calls (1, 5), (4, 2), (3, 3): 5, 4, 3. The maximum of medians would be 3."""
    assert per_call_maximum([[1.0, 4.0, 3.0], [5.0, 2.0, 3.0]]) == [5.0, 4.0, 3.0]


def test_a_summary_by_hand():
    """Two ranks, four calls."""
    summary = summarise([[1.0, 1.0, 1.0, 1.0], [2.0, 4.0, 2.0, 3.0]])
    assert (summary.median_s, summary.p95_s, summary.min_s) == (2.5, 4.0, 2.0)
    assert (summary.num_ranks, summary.num_repeats, summary.slowest_rank) == (2, 4, 1)
    assert summary.max_over_mean == pytest.approx(2.75 / 1.875)
    assert summary.low_s <= summary.median_s <= summary.high_s


@pytest.mark.parametrize(("percent", "expected"), [(50, 10), (95, 19), (99, 20), (100, 20), (5, 1), (1, 1)])
def test_nearest_rank_percentile(percent, expected):
    """Of 1 to 20: a value that occurred, never one in between."""
    assert percentile(list(range(20, 0, -1)), percent) == expected


@settings(deadline=None)
@given(times, st.floats(0.1, 100))
def test_a_percentile_leaves_at_most_the_rest_above(values, percent):
    """Its definition, for any data."""
    found = percentile(values, percent)
    below = sum(v <= found for v in values)
    assert found in values
    assert below >= math.floor(percent / 100 * len(values))


@settings(deadline=None)
@given(times)
def test_the_interval_holds_the_median_and_comes_out_again(values):
    """Between minimum and maximum, around the median, the same for the same samples."""
    low, high = bootstrap_interval(values, rounds=200)
    assert min(values) <= low <= high <= max(values)
    assert (low, high) == bootstrap_interval(values, rounds=200)
    assert len(values) < 5 or low <= median(values) <= high


def test_more_spread_gives_a_wider_interval():
    """An interval that does not depend on the data would say nothing."""
    tight = bootstrap_interval([1.0 + i * 1e-3 for i in range(20)])
    wide = bootstrap_interval([1.0 + i * 1e-1 for i in range(20)])
    assert wide[1] - wide[0] > 50 * (tight[1] - tight[0])


@pytest.mark.parametrize(
    "samples",
    [[], [[]], [[1.0], [1.0, 2.0]], [[1.0], [0.0]], [[1.0], [float("nan")]], [[-1.0]]],
    ids=["no_rank", "no_repeat", "ragged", "idle_rank", "nan", "negative"],
)
def test_broken_samples_are_refused(samples):
    """A missing repeat or an idle rank's zero must not become a better median."""
    with pytest.raises(UsageError):
        summarise(samples)


def test_a_late_rank_is_not_timed_by_the_others(ranks):
    """Rank 1 is late before every call. With a barrier in front, rank 0 does not wait for it inside its sample."""
    run = ranks(2, ledger=False).run(programs.timing.late_before_each_call, 0.1, 4)
    summary = summarise(run.results)
    assert summary.num_repeats == 4
    assert min(run.results[0]) < 0.05


def test_the_slow_rank_sets_the_time_of_a_call(ranks):
    """Rank 1 works 20 ms in every call: the per-call maximum shows it, rank 0 alone would not."""
    run = ranks(2, ledger=False).run(programs.timing.slow_in_each_call, 0.02, 4)
    summary = summarise(run.results)
    assert summary.slowest_rank == 1
    assert summary.min_s >= 0.02
    assert min(run.results[0]) < 0.02
