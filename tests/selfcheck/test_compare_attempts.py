"""Retries and merged evidence in a comparison: no attempt hides another, no machine another, and no run counts twice."""

import datetime
import itertools
import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from parproof.cli import main
from parproof.errors import UsageError
from parproof.evidence.audit import audit
from parproof.evidence.compare import Incomparable, Options, compare, runs
from parproof.evidence.merge import merge

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "fixtures" / "evidence"
make = SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "make_comparison_fixtures.py")))
FAULT = {"type": "AssertionError", "message": "rank 1 differs", "phase": "call", "rank": 1}
SKIP = {"reason": "not today", "requirement": "", "found": "not today", "how": ""}
FAST, SLOW = (make.timing("step", 3, scale=scale, repeats=20) for scale in (1.0, 2.0))
ENDINGS = {
    "ok": {},
    "skipped": {"status": "skipped", "skip": SKIP, "runs": [], "workload_id": None, "workload": {}},
    "failed": {"status": "failed", "failure": FAULT},
    "blocked": {"status": "blocked", "failure": FAULT},
    "known": {"status": "failed", "failure": FAULT, "expected_nonconformance": "pytorch#1"},
}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write a run, each an hour after the last, in which one test had these attempts, besides one that always passes."""
    hours = itertools.count(1)

    def write(name, *attempts, **told):
        beside = make.outcome("test_c1[other-cpu]", backend="gloo", subject=None)
        tried = [make.outcome("test_c1[x]", backend="gloo", **changes) for changes in attempts]
        clock = make.CLOCK + datetime.timedelta(hours=next(hours))
        monkeypatch.setitem(make.write.__globals__, "CLOCK", clock)
        path = make.write(tmp_path / name, [beside, *tried], **told)
        assert audit(path).findings == []
        return path

    return write


@pytest.fixture
def merged(tmp_path, written):
    """Merge one run for each set of environment values."""

    def write(name, *told):
        shards = [written(f"{name}{n}", {}, factors=factors) for n, factors in enumerate(told)]
        merge(shards, tmp_path / name)
        return tmp_path / name

    return write


@pytest.mark.parametrize(
    ("attempts", "outcome"),
    [
        (("failed", "ok"), "failed"),
        (("ok", "failed"), "failed"),
        (("blocked", "ok"), "blocked"),
        (("skipped", "ok"), "skipped"),
        (("known", "ok"), "expected failure (pytorch#1)"),
        (("known", "blocked"), "blocked"),
        (("blocked", "known", "ok"), "blocked"),
    ],
)
def test_the_worst_attempt_counts(attempts, outcome, written):
    """In whichever order they came."""
    candidate = written("b", *(ENDINGS[how] for how in attempts))
    told = compare([written("a", {})], [candidate], Options(fail_on=("correctness",)))
    assert [(c["baseline"], c["candidate"], c["regression"]) for c in told["changes"]] == [
        ("ok", outcome, True)
    ]
    assert told["gate"]["failed"]


def test_a_retry_in_merged_evidence_is_a_regression(capsys):
    """The first shard failed, the retry passed."""
    arguments = ["compare", str(EVIDENCE / "good"), str(EVIDENCE / "merged"), "--fail-on", "regress"]
    assert main(arguments) == 1
    assert "WORSE  ok → failed  test_nccl_collective.py::test_c1[native]" in capsys.readouterr().out


def test_a_shard_is_not_mended_by_the_evidence_it_is_part_of(capsys):
    """They are one run."""
    assert main(["compare", str(EVIDENCE / "shards" / "first"), str(EVIDENCE / "merged")]) == 2
    printed = capsys.readouterr()
    assert "failed → ok" not in printed.out
    assert "both hold run aaaaaaaaaaaa" in printed.err


def test_the_lowest_level_of_the_attempts_counts(written):
    """Ranks that were watched once, and once by nobody."""
    unwatched = make.run_of("gloo") | {"calls_seen": 0, "ledger": False, "ledger_complete": None}
    below = {"runs": [(unwatched, [[], []])]}
    for name, attempts in (("b", (below, {})), ("c", ({}, below))):
        told = compare([written(f"first-{name}", {})], [written(name, *attempts)])
        (change,) = told["changes"]
        assert (change["kind"], change["candidate"], change["regression"]) == (
            "level",
            "cpu_simulation",
            True,
        )
        assert [sent["change"] for sent in told["traffic"]] == ["unseen"]


def test_a_known_defect_of_any_attempt_is_told(written):
    """The second one is new, though the first was there before."""
    other = ENDINGS["known"] | {"expected_nonconformance": "pytorch#2"}
    told = compare([written("a", ENDINGS["known"])], [written("b", ENDINGS["known"], other)])
    (change,) = told["changes"]
    assert (change["candidate"], change["regression"]) == ("expected failure (pytorch#1, pytorch#2)", True)


def test_of_the_load_of_attempts_the_largest_counts(written):
    """In whichever order they came."""
    low, high = ({"figures": {"load": {"overflow": value}}} for value in (1, 3))
    for name, attempts in (("a", (low, high)), ("b", (high, low))):
        found = runs.read(written(name, *attempts), {}).records[f"{make.MODULE}::test_c1[x]"]
        assert json.loads(found.figures) == {"load.overflow": 3}


@pytest.mark.parametrize("how", ["failed", "skipped"])
def test_times_and_traffic_of_a_retry_are_not_read(how, written):
    """The attempt that passed shows neither that it is fast nor what it sent."""
    first = written("a", {"times": [SLOW]})
    second = written("b", ENDINGS[how], {"times": [FAST], "rows": make.ledger(1)})
    told = compare([first], [second])
    assert (told["times"], told["traffic"], told["num_tests"]["traffic"]) == ([], [], 1)


def test_attempts_that_all_passed_are_repeats_of_one_run(written):
    """Whatever the order, no attempt is chosen; traffic that they do not agree on is unsteady."""
    first = written("a", {"times": [FAST]})
    slow_at_first = written("b", {"times": [SLOW]}, {"times": [FAST], "rows": make.ledger(1)})
    told = compare([first], [slow_at_first])
    (one,) = told["times"]
    assert (one["candidate"]["repeats"], one["verdict"]) == ([40], "inconclusive")
    assert one["drift"] == ["candidate grows faster"]
    assert [(c["change"], c["regression"]) for c in told["traffic"]] == [("unsteady", True)]
    without = written("c", {"times": [FAST]}, {})
    (one,) = compare([first], [without])["times"]
    assert one["verdict"] == "not read"


def test_every_attempt_is_held_to_the_same_workload(written):
    """Not only the one that counts."""
    other = {"workload": {"size": 128, "dtype": "float32"}}
    for name, attempts in (("b", ({}, other)), ("c", (other, {}))):
        with pytest.raises(Incomparable, match=r"workload\.size: baseline 64, candidate 128"):
            compare([written(f"first-{name}", {})], [written(name, *attempts)])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("machine.cpu_model", ("one CPU", "another CPU")),
        ("machine.num_cpus", (8, 16)),
        ("machine.memory_bytes", (1 << 36, 1 << 37)),
        ("packages.nccl", ("2.29.1", "2.30.1")),
        ("variables.OMP_NUM_THREADS", ("1", "4")),
    ],
)
def test_merged_evidence_of_unequal_machines_is_refused(name, values, merged):
    """Also when both sides have the same two machines: each may have run the other's tests."""
    first, second = (merged(side, *({name: value} for value in values)) for side in "ab")
    with pytest.raises(UsageError, match="differ in 1 fact: ") as refused:
        compare([first], [second])
    for text in (name, *map(str, values), str(first), "compare shard by shard"):
        assert text in str(refused.value)


def test_two_merged_sides_are_compared_by_the_machines_of_their_shards(merged):
    """Where memory differs a little, the merged environment holds no number; the shards do."""
    little = [
        {"machine.memory_bytes": (1 << 36) - kept, "machine.hostname": f"n{kept}"} for kept in (0, 4096)
    ]
    much = [{"machine.memory_bytes": (1 << 37) - kept} for kept in (0, 4096)]
    first, equal, other = merged("a", *little), merged("b", *little), merged("c", *much)
    assert json.loads((first / "environment.json").read_text())["machine"]["memory_bytes"] is None
    told = compare([first], [equal])
    assert told["equal"]["machine.memory_bytes"] == 1 << 36
    assert told["baseline"][0]["hostname"] == "n0 | n4096"
    with pytest.raises(Incomparable, match=r"machine\.memory_bytes: baseline 68719476736, candidate 137"):
        compare([first], [other])


def test_runs_that_share_a_shard_are_not_two(tmp_path, written):
    """Merged with others twice, or merged and alone, on one side or on both."""
    shards = [written(name, {}) for name in ("s1", "s2", "s3")]
    for name, other in (("m12", shards[1]), ("m13", shards[2])):
        merge([shards[0], other], tmp_path / name)
    m12, m13, elsewhere = tmp_path / "m12", tmp_path / "m13", written("e", {})
    for sides in (([m12, m13], [elsewhere]), ([m12], [m13]), ([elsewhere], [shards[0], m12])):
        with pytest.raises(UsageError, match="both hold run 0000"):
            compare(*sides)
    assert compare([m12], [shards[2]])["changes"] == []


@pytest.mark.parametrize("place", ["first", "second", "further", "folder", "linked"])
def test_the_document_is_not_written_into_what_was_compared(place, tmp_path, written, capsys):
    """It would no longer pass its audit: the manifest binds every file."""
    runs = {name: written(name, {}) for name in ("first", "second", "further")}
    (tmp_path / "linked").symlink_to(runs["second"])
    (runs["first"] / "folder").mkdir()
    target = runs["first"] / "folder" if place == "folder" else tmp_path / place
    sides = ["--baseline", runs["first"], "--candidate", runs["second"], runs["further"]]
    assert main(["compare", *map(str, sides), "--output", str(target / "comparison.json")]) == 2
    assert "expected a place outside of what is compared" in capsys.readouterr().err
    assert not (target / "comparison.json").exists()
