"""accept, tune, reject, pending: each for its reason, with the next thing to do. The records stay pending."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from parproof.evidence.compare import Options, Varies, compare

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
make = SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "make_comparison_fixtures.py")))
FAULT = {"type": "AssertionError", "message": "rank 1 differs", "phase": "call", "rank": 1}


@pytest.fixture
def decided(tmp_path):
    """Decide on `num_runs` made-up benchmarks a side; `change` makes the candidate's tests of a run number."""

    def written(change, *, num_runs=3, baseline=make.benchmark, goal="faster", source="1", **told):
        common = {name: told.pop(name) for name in ("accelerator", "factors") if name in told}
        sides = [
            [make.write(tmp_path / f"{side}{n}", made(n), **given) for n in range(start, start + num_runs)]
            for side, start, made, given in (
                ("a", 1, baseline, common),
                ("b", 101, change, common | {"source": source} | told),
            )
        ]
        document = compare(*sides, Options(Varies("source"), goal=goal))
        return SimpleNamespace(**document["decision"])

    return written


def as_fast(number):
    """Nothing changed."""
    return make.benchmark(number)


def faster(number):
    """The small calls take four fifths of the time."""
    return make.benchmark(number, scale=0.8)


def with_tail(number):
    """Faster, but every tenth call takes three times as long."""
    outcomes = faster(number)
    for samples in outcomes[2].times[0]["samples_s"]:
        samples[::10] = [3 * sample for sample in samples[::10]]
    return outcomes


def with_drift(number):
    """Faster, but the second half of the run takes a fifth longer than the first."""
    outcomes = faster(number)
    for samples in outcomes[2].times[0]["samples_s"]:
        samples[6:] = [1.2 * sample for sample in samples[6:]]
    return outcomes


def as_measured(outcomes, **load):
    """The same tests; the last one tells its load."""
    *others, last = outcomes
    told = make.outcome("test_c8[reference-cuda2]", "C8", times=last.times, figures={"load": load})
    return [*others, told]


def with_overflow(number):
    """Faster, and tokens fall off the end."""
    return as_measured(faster(number), overflow=2)


def broken(number, status="failed", **told):
    """Faster, and wrong."""
    failed = make.outcome("test_c1[reference-cuda2]", status=status, failure=FAULT, **told)
    return [failed, make.outcome("test_c1[other]", subject=None), *faster(number)[1:]]


def whole(number):
    """As a baseline for `broken`."""
    return [make.outcome("test_c1[other]", subject=None), *make.benchmark(number)]


def test_a_gain_that_was_repeated_on_equal_hardware_is_accepted(decided):
    """And only then: every case below takes one condition away."""
    found = decided(faster)
    assert (found.decision, found.level) == ("accept", "real_benchmark")
    assert "1 timing is faster, no other is slower" in found.reason
    assert "--fail-on regress" in found.next_action


@pytest.mark.parametrize(
    ("change", "decision", "reason"),
    [
        (as_fast, "reject", "no gain"),
        (lambda n: make.benchmark(n, scale=1.2), "reject", "slower and none is faster"),
        (lambda n: make.benchmark(n, scale=0.8, slow=1.2), "tune", "1 timing is faster and 1 slower"),
        (lambda n: make.benchmark(n, scale=0.8, size=65), "tune", "sends otherwise (more)"),
        (with_tail, "tune", "the tail (P95)"),
        (with_drift, "tune", "drifts: candidate grows slower"),
    ],
    ids=["no_gain", "slower", "mixed", "more_traffic", "tail", "drift"],
)
def test_times_decide_where_all_else_is_equal(change, decision, reason, decided):
    """§ accept, tune, reject of docs/compare.md."""
    found = decided(change)
    assert (found.decision, reason in found.reason) == (decision, True), found
    assert found.next_action


def test_a_gain_that_drops_tokens_is_none_yet(decided):
    """Higher throughput with overflow is no gain."""
    found = decided(with_overflow, baseline=lambda n: as_measured(make.benchmark(n), overflow=0))
    assert (found.decision, "load.overflow" in found.reason) == ("tune", True), found


@pytest.mark.parametrize(
    ("status", "told", "reason"),
    [
        ("failed", {}, "did not pass in the candidate"),
        ("blocked", {}, "did not pass in the candidate"),
        ("failed", {"expected_nonconformance": "pytorch#1"}, "a new known defect"),
    ],
)
def test_a_wrong_result_is_rejected_however_fast(status, told, reason, decided):
    """Correctness before time."""
    found = decided(lambda n: broken(n, status, **told), baseline=whole)
    assert (found.decision, reason in found.reason) == ("reject", True), found


def test_a_claim_that_is_gone_decides_nothing(decided):
    """It has to be run, not judged."""
    found = decided(lambda n: faster(n)[1:])
    assert (found.decision, found.next_action[:13]) == ("pending", "run the tests")


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"num_runs": 1}, "1 run on a side"),
        ({"accelerator": None}, "unknown is not equal: topology.accelerator"),
        ({"factors": {"machine.cpu_model": None}}, "unknown is not equal: machine.cpu_model"),
        ({"source": "0"}, "nothing differs between the sides"),
        ({"dirty": True}, "no commit holds"),
        ({"baseline": lambda n: make.benchmark(n, scale=0.6 + n % 2)}, "timings are open"),
        (
            {"baseline": lambda n: make.benchmark(n)[2:], "change": lambda n: faster(n)[2:]},
            "no value claim of PAR-",
        ),
    ],
    ids=["one_run", "unknown_gpu", "unknown_cpu", "no_factor", "uncommitted", "unstable", "no_values"],
)
def test_what_was_not_shown_keeps_it_pending(told, reason, decided):
    """A gain was seen each time."""
    found = decided(**{"change": faster} | told)
    assert (found.decision, reason in found.reason) == ("pending", True), found
    assert found.next_action


def test_two_versions_that_changed_at_once_decide_nothing(tmp_path):
    """They may be declared as a group; which of them did it is not known."""
    new = {"packages.torch": "2.14.0", "packages.numpy": "2.5.0"}
    sides = [
        [make.write(tmp_path / f"{side}{n}", outcomes(n), factors=factors) for n in (1, 2, 3)]
        for side, outcomes, factors in (("a", as_fast, {}), ("b", faster, new))
    ]
    found = compare(*sides, Options(Varies("packages")))["decision"]
    assert found["decision"] == "pending"
    assert found["reason"].startswith("packages.numpy and packages.torch both differ")


def test_a_timing_that_is_faster_or_the_same_hinders_nothing(decided):
    """Which of the two is not known, but slower it is not."""
    found = decided(lambda n: make.benchmark(n, scale=0.8, slow=0.96))
    assert found.decision == "accept"


def test_times_on_cpu_decide_nothing_and_still_fail_the_gate(tmp_path):
    """Classified, gated, pending."""
    sides = [
        [
            make.write(
                tmp_path / f"{side}{n}",
                [
                    make.outcome(
                        "test_c8", "C8", backend="gloo", times=[make.timing("step", seed + n, scale=scale)]
                    )
                ],
                source=side,
            )
            for n in range(3)
        ]
        for side, seed, scale in (("0", 0, 1.0), ("1", 50, 1.5))
    ]
    told = compare(*sides, Options(Varies("source"), fail_on=("time",)))
    assert [one["verdict"] for one in told["times"]] == ["slower"]
    assert told["gate"]["failed"]
    assert told["decision"]["decision"] == "pending"
    assert "level cpu_process_group" in told["decision"]["reason"]


def test_the_weakest_timing_is_the_level_of_the_decision(decided):
    """A benchmark beside a timing on CPU is no benchmark of both."""

    def with_cpu(number):
        times = [make.timing("step", 7 * number)]
        return [*faster(number), make.outcome("test_c8[reference-cpu]", "C8", backend="gloo", times=times)]

    found = decided(with_cpu, baseline=with_cpu)
    assert (found.decision, found.level) == ("pending", "cpu_process_group")


def test_equal_times_are_accepted_where_they_are_the_goal(decided):
    """A new version need not be faster."""
    assert decided(as_fast, goal="no-slower").decision == "accept"


def test_a_comparison_changes_no_record(decided, tmp_path):
    """The decision of a record stays pending: the comparison is a document of its own."""
    assert decided(faster).decision == "accept"
    for path in tmp_path.glob("*/records.jsonl"):
        records = map(json.loads, path.read_text().splitlines())
        assert {record["conclusion"]["decision"] for record in records} == {"pending"}
