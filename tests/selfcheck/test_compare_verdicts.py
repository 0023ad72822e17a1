"""What changed between two runs: outcomes and levels, counted traffic, and times where the values are right."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from parproof.evidence.compare import Options, compare

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
make = SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "make_comparison_fixtures.py")))
FAULT = {"type": "AssertionError", "message": "rank 1 differs", "phase": "call", "rank": 1}
SKIP = {"reason": "not today", "requirement": "", "found": "not today", "how": ""}
CLAIM, GATE = "test_c1[reference-cpu]", ("correctness", "level", "traffic", "time")


@pytest.fixture
def compared(tmp_path):
    """Compare lists of outcomes, one list a run."""

    def written(baseline, candidate, **asked):
        sides = {"a": baseline, "b": candidate}
        paths = [
            [make.write(tmp_path / f"{side}{number}", outcomes) for number, outcomes in enumerate(runs)]
            for side, runs in sides.items()
        ]
        return compare(*paths, Options(fail_on=GATE, **asked))

    return written


def ended(how, test=CLAIM):
    """A value claim that ended in some way; nothing for a test that is not there."""
    if how == "missing":
        return []
    if how == "skipped":
        return [
            make.outcome(
                test, backend="gloo", status="skipped", skip=SKIP, runs=[], workload_id=None, workload={}
            )
        ]
    if how in ("failed", "blocked"):
        return [make.outcome(test, backend="gloo", status=how, failure=FAULT)]
    if how.startswith("pytorch#"):
        return [
            make.outcome(test, backend="gloo", status="failed", failure=FAULT, expected_nonconformance=how)
        ]
    return [make.outcome(test, backend="gloo")]


def beside():
    """The claim as another test shows it, on both sides: without it the audit would miss the claim."""
    return [make.outcome("test_c1[other-cpu]", backend="gloo", subject=None)]


@pytest.mark.parametrize(
    ("before", "after", "is_worse"),
    [
        ("ok", "failed", True),
        ("ok", "blocked", True),
        ("ok", "skipped", True),
        ("ok", "missing", True),
        ("ok", "pytorch#1", True),
        ("failed", "skipped", True),
        ("pytorch#1", "missing", True),
        ("pytorch#1", "failed", True),
        ("pytorch#1", "pytorch#2", True),
        ("missing", "failed", True),
        ("skipped", "pytorch#1", True),
        ("failed", "ok", False),
        ("pytorch#1", "ok", False),
        ("missing", "ok", False),
        ("skipped", "missing", False),
    ],
)
def test_a_claim_that_held_and_holds_no_more_is_a_regression(before, after, is_worse, compared):
    """A fault that is skipped, gone or listed is not mended."""
    told = compared([beside() + ended(before)], [beside() + ended(after)])
    (change,) = told["changes"]
    assert change["regression"] is is_worse
    assert told["gate"]["failed"] is is_worse
    assert told["gate"]["found"]["correctness"] == is_worse


@pytest.mark.parametrize("how", ["ok", "failed", "skipped", "pytorch#1"])
def test_an_outcome_that_stays_is_no_change(how, compared):
    """Red before and red after is for the run to say."""
    assert compared([beside() + ended(how)], [beside() + ended(how)])["changes"] == []


def test_a_run_that_passed_hides_none_that_failed(compared):
    """Of several runs of a side the worst counts."""
    told = compared([beside() + ended("ok")], [beside() + ended(how) for how in ("ok", "failed", "ok")])
    assert [change["candidate"] for change in told["changes"]] == ["failed"]


def test_a_level_that_sank_is_a_regression(compared):
    """Ranks that were seen to send, and ranks that nobody watched."""
    unwatched = make.run_of("gloo") | {"calls_seen": 0, "ledger": False, "ledger_complete": None}
    below = make.outcome(CLAIM, backend="gloo", runs=[(unwatched, [[], []])])
    told = compared([ended("ok")], [[below]])
    (change,) = told["changes"]
    assert (change["kind"], change["baseline"], change["candidate"]) == (
        "level",
        "cpu_process_group",
        "cpu_simulation",
    )
    assert told["gate"]["found"]["level"] == 1
    assert [change["change"] for change in told["traffic"]] == ["unseen"]


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ({"size": 64}, {"size": 65}, "more"),
        ({"size": 64}, {"size": 63}, "less"),
        ({"calls": 1}, {"calls": 2}, "more"),
        ({"size": 64, "calls": 2}, {"size": 96, "calls": 1}, "less"),
        ({"size": 64, "calls": 2}, {"size": 192, "calls": 1}, "moved"),
    ],
)
def test_any_change_of_counted_traffic_is_one(before, after, change, compared):
    """One element is enough: nothing is estimated."""
    sides = [[make.outcome(CLAIM, backend="gloo", rows=make.ledger(**made))] for made in (before, after)]
    told = compared(sides[:1], sides[1:])
    (found,) = told["traffic"]
    assert (found["change"], found["kind"]["op"]) == (change, "all_reduce")
    assert found["candidate"][0] == 2 * after.get("calls", 1)
    assert told["gate"]["found"]["traffic"] == (change != "less")
    assert told["num_tests"]["traffic"] == 1


def test_a_ledger_that_no_longer_saw_every_call_compares_nothing(compared):
    """The group counted calls that the ledger did not see: what was seen is equal, and proves nothing."""
    half = make.run_of("gloo") | {"ledger_complete": False}
    (found,) = compared([ended("ok")], [[make.outcome(CLAIM, backend="gloo", runs=[(half, make.ledger())])]])[
        "traffic"
    ]
    assert (found["change"], found["regression"]) == ("unseen", True)


def test_a_rank_that_sends_for_another_is_seen(compared):
    """The sum over ranks stays the same."""
    row = make.ledger()[0][0]
    sides = [
        [make.outcome(CLAIM, backend="gloo", rows=rows)]
        for rows in ([[row] * 2, [row] * 2], [[row] * 3, [row]])
    ]
    (found,) = compared(sides[:1], sides[1:])["traffic"]
    assert (found["change"], found["baseline"]) == ("moved", found["candidate"])


def test_runs_that_send_now_this_now_that_are_unsteady(compared):
    """In the candidate a regression; in the baseline nothing to compare with."""
    one, other = ([make.outcome(CLAIM, backend="gloo", rows=make.ledger(size))] for size in (64, 65))
    assert [c["change"] for c in compared([one], [one, other])["traffic"]] == ["unsteady"]


def timed(seed, *more, scale=1.0, repeats=20, **changes):
    """One run with one timing, and other tests."""
    time = make.timing("step", seed, scale=scale, repeats=repeats)
    return [make.outcome("test_c8", "C8", times=[time], **changes), *more]


@pytest.mark.parametrize(
    ("scale", "repeats", "verdict"),
    [
        (1.2, 20, "slower"),
        (0.8, 20, "faster"),
        (1.0, 40, "same"),
        (1.05, 20, "inconclusive"),
        (1.0, 2, "inconclusive"),
        (2.0, 2, "inconclusive"),
    ],
)
def test_the_bounds_against_the_threshold_make_the_verdict(scale, repeats, verdict, compared):
    """Too few repeats are inconclusive, whatever they show: never the same, never slower."""
    told = compared([timed(1, repeats=repeats)], [timed(2, scale=scale, repeats=repeats)])
    (one,) = told["times"]
    assert one["verdict"] == verdict, one
    assert told["gate"]["failed"] is (verdict == "slower")
    if repeats == 2:
        assert "2 and 2 repeats are too few: 3 a side" in one["reason"]
    if repeats == 20:
        assert one["bounds"][0] <= one["factor"] <= one["bounds"][1]


def test_the_slowest_rank_is_what_is_compared(compared):
    """The other rank is twice as fast now, and nobody gains by it."""
    time = make.timing("step", 2, repeats=40)
    time["samples_s"][0] = [sample / 2 for sample in time["samples_s"][0]]
    candidate = [make.outcome("test_c8", "C8", times=[time])]
    assert compared([timed(1, repeats=40)], [candidate])["times"][0]["verdict"] == "same"


@pytest.mark.parametrize("side", ["baseline", "candidate"])
@pytest.mark.parametrize("how", ["failed", "blocked", "pytorch#1"])
def test_no_time_is_read_where_a_value_claim_failed(side, how, compared):
    """On either side; the claim is named."""
    sides = {
        name: [timed(seed, *ended("ok"), *beside())] for seed, name in enumerate(("baseline", "candidate"))
    }
    sides[side] = [timed(3, *ended(how), *beside())]
    (one,) = compared(*sides.values())["times"]
    assert (one["verdict"], one["factor"]) == ("not read", None)
    assert one["reason"].startswith("correctness first: C1 ")
    assert one["reason"].endswith(f"in the {side}")


def test_a_known_defect_of_both_or_of_another_subject_stops_no_reading(compared):
    """It is a finding of both runs alike; another subject's fault says nothing of this one's time."""
    other = {"name": "torch_native", "address": "parproof.subjects.torch_native:SUBJECT"}
    broken = make.outcome("test_c1[native]", backend="gloo", status="failed", failure=FAULT, subject=other)
    sides = [[timed(seed, *ended("pytorch#1"), *more)] for seed, more in ((1, ()), (2, (broken,)))]
    assert compared(*sides)["times"][0]["verdict"] != "not read"


def test_a_timing_that_is_gone_is_a_regression(compared):
    """The test passes and measures nothing: a gate must not pass by silence."""
    told = compared([timed(1)], [[make.outcome("test_c8", "C8")]])
    assert [one["verdict"] for one in told["times"]] == ["missing"]
    assert told["gate"]["found"]["time"] == 1


@pytest.mark.parametrize("seconds", [0.0, 1e-300, 1e300])
def test_a_time_that_cannot_be_is_not_read(seconds, compared):
    """An idle rank's zero, or a number somebody made up: no ratio, no overflow."""
    time = make.timing("step", 2)
    time["samples_s"] = [[seconds] * len(samples) for samples in time["samples_s"]]
    (one,) = compared([timed(1)], [[make.outcome("test_c8", "C8", times=[time])]])["times"]
    assert (one["verdict"], one["factor"]) == ("not read", None)


def test_a_slowdown_that_the_bounds_exclude_is_not_undecided(compared):
    """Faster or the same: a gate need not fear it."""
    told = compared([timed(1, repeats=40)], [timed(2, repeats=40, scale=0.951)])
    (one,) = told["times"]
    assert (one["verdict"], one["slower_excluded"]) == ("inconclusive", True)
    assert told["gate"]["found"]["undecided"] == 0
