"""Whoever reads evidence counts a test once, with the worst of its attempts: a retry hides a failure nowhere."""

import json
import sys
from pathlib import Path

import pytest

from parproof.cli import main
from parproof.evidence import consume
from parproof.evidence.attempts import Ending, Tally, worst_of
from parproof.evidence.audit import audit, junit
from parproof.evidence.exchange import exporting

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures" / "evidence"
GOOD, MERGED = FIXTURES / "good", FIXTURES / "merged"
FLAKY = "tests/mechanisms/test_nccl_collective.py::test_c1[native]"
PROJECT = "PAR-TRAINING-STATE"


@pytest.fixture
def outcomes(monkeypatch):
    """Records of an honest run, by name."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import evidence_directory

    yield lambda *names: evidence_directory.Directory(names).placed()
    sys.modules.pop("evidence_directory")


def ended(record, status, sequence):
    """The same test, another attempt."""
    end = record["conclusion"] | {"status": status}
    end["skip"] = {"reason": "not today"} if status == "skipped" else None
    failure = {"type": "E", "message": "wrong", "phase": "call", "rank": None}
    end["failure"] = failure if status == "failed" else None
    return record | {"conclusion": end, "sequence": sequence}


@pytest.mark.parametrize(
    ("attempts", "worst", "flaky"),
    [
        (("ok", "failed"), "failed", True),
        (("failed", "ok"), "failed", True),
        (("skipped", "ok"), "skipped", True),
        (("blocked", "skipped", "ok"), "blocked", True),
        (("ok", "ok"), "ok", False),
    ],
)
def test_the_worst_attempt_stands_for_a_test(attempts, worst, flaky):
    """Whatever the order."""
    tally = Tally()
    for status in attempts:
        tally.add("t", Ending(status, "gpu_smoke"))
    assert (tally.worst["t"].status, bool(tally.flaky)) == (worst, flaky)


@pytest.mark.parametrize("levels", [("gpu_smoke", "cpu_process_group"), ("cpu_process_group", "gpu_smoke")])
def test_of_two_passes_the_one_that_shows_less_counts(levels):
    """The order of attempts gives no level; other levels are no other outcome."""
    tally = Tally()
    for level in levels:
        tally.add("t", Ending("ok", level))
    assert (tally.worst["t"].level, tally.flaky) == ("cpu_process_group", [])


def test_two_known_defects_of_one_test_are_two_outcomes():
    """Each was found once and not the other time."""
    tally = Tally()
    for report in ("pytorch#1", "pytorch#2"):
        tally.add("t", Ending("failed", "cpu_process_group", report))
    assert tally.flaky == ["t"]


@pytest.mark.parametrize("attempts", [("skipped", "ok"), ("ok", "skipped"), ("failed", "ok")])
def test_a_consumer_takes_no_claim_of_a_test_that_did_not_always_pass(attempts, outcomes):
    """A skip is no pass, also where another attempt was one."""
    (record,) = outcomes("benchmark")
    tried = [ended(record, status, number) for number, status in enumerate(attempts)]
    edges = consume.judge(PROJECT, {"PAR-NCCL-COLLECTIVE": tried})
    (edge,) = [edge for edge in edges if edge.producer == "PAR-NCCL-COLLECTIVE"]
    assert not edge.usable
    expected = "correctness: " if "failed" in attempts else "no record that ran"
    assert edge.reason.startswith(expected), f"attempts {attempts}: refused for «{edge.reason}»"


@pytest.mark.parametrize("attempts", [("failed", "ok"), ("ok", "failed")])
def test_an_export_hands_on_the_attempt_that_counts(attempts, outcomes):
    """The other is listed with its reason."""
    (record,) = outcomes("project")
    tried = [ended(record, status, number) for number, status in enumerate(attempts)]
    manifest = json.loads((GOOD / "manifest.json").read_text())
    (document,) = exporting.assemble(manifest, tried, [PROJECT]).documents.values()
    kind = (document["failure"] or {}).get("kind")
    assert kind == "failed", (
        f"attempts {attempts}: the export tells of a pass, the failed attempt is not in it"
    )
    (other,) = document["artifacts"]["not_exported"]
    assert (other["status"], other["reason"][:15]) == ("ok", "another attempt")


def test_a_citation_counts_tests_and_not_attempts():
    """Seven records of six tests."""
    manifest = json.loads((MERGED / "manifest.json").read_text())
    documents = exporting.build(MERGED).documents.values()
    cited = [
        cite["num_records"]
        for d in documents
        for cite in d["metrics"]["cites"]
        if any(cite["num_records"].values())
    ]
    known = {"ok": 2, "failed": 2, "blocked": 0, "skipped": 1}  # one test belongs to no experiment
    assert cited == [known] * len(cited)
    assert manifest["counts"] == {"ok": 3, "failed": 2, "blocked": 0, "skipped": 1}


def test_merge_status_and_audit_tell_the_same_numbers(tmp_path, capsys):
    """Tests, not records."""
    shards = [str(FIXTURES / "shards" / name) for name in ("first", "retry")]
    assert main(["merge", *shards, "--output", str(tmp_path / "out")]) == 0
    assert "7 records of 6 tests (2 failed, 3 ok, 1 skipped) in 2 shards" in capsys.readouterr().out
    main(["status", "--evidence", str(MERGED), "--json"])
    states = {row["id"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert states["PAR-NCCL-COLLECTIVE"] == "cpu_process_group: 2 ok, 2 failed, 1 skipped"


def test_worst_of_keeps_the_order_of_tests(outcomes):
    """One record each."""
    first, second = outcomes("value", "ledger")
    again = ended(first, "failed", 2)
    assert worst_of([first, second, again]) == [again, second]


@pytest.mark.parametrize("told", ["ok", "skipped"])
def test_a_property_in_junit_hides_no_failure(told, tmp_path):
    """A case that failed has failed, whatever its properties say."""
    path = tmp_path / "junit.xml"
    status = f"<properties><property name='parproof.status' value='{told}'/></properties>"
    path.write_text(f"<testsuite><testcase classname='a' name='b'>{status}<failure/></testcase></testsuite>")
    assert junit.read_junit(path)["a::b"].status == "failed"


def test_the_retry_of_the_merged_fixture_is_what_the_audit_calls_flaky():
    """The fixture that others are tried on."""
    assert audit(MERGED).tally.flaky == [FLAKY]
