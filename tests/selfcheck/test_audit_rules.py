"""The audit finds every kind of lie, names it, and finds nothing in good evidence."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from parproof.cli import main
from parproof.evidence.audit import Finding, audit, rules
from parproof.evidence.audit.sealed import SEAL_RULES

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures" / "evidence"
GOOD = FIXTURES / "good"
ALSO_GOOD = sorted((FIXTURES / "also-good").iterdir())
BAD = sorted((FIXTURES / "bad").iterdir())
SEALS = sorted((FIXTURES / "seals").glob("seal-*.json"))
JUNIT = sorted((FIXTURES / "junit").glob("junit-agrees*.xml"))
# A record that breaks its schema is not judged further, so it is missing for the rules about all records; and what
# was done to a chain or a backend shows in more than one place.
MAY_FOLLOW = {
    "schema": {"chain", "complete", "counts"},
    "chain": {"clock-forward"},
    "chain--duplicated": {"complete", "counts", "clock-forward", "counted-once"},
    "chain--truncated": {"complete", "counts"},
    "files-bound--removed": {"trace-kept"},
    "level-computed--fake-backend": {"communication-real"},
}


def test_good_evidence_has_no_finding():
    """Also against its JUnit file."""
    result = audit(GOOD, FIXTURES / "junit" / "good.xml")
    assert result.findings == []
    assert (result.num_records, result.exit_status) == (6, 0)


@pytest.mark.parametrize("path", ALSO_GOOD, ids=lambda path: path.name)
def test_other_good_evidence_has_no_finding(path):
    """GPUs, several hosts, a trace, a project; and the same run later, of another commit, on another machine."""
    assert audit(path).findings == []


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name)
def test_each_lie_is_found_by_its_rule_and_by_no_other(path):
    """Sealed again by a liar who knows the format and has made the rest fit."""
    rule = path.name.split("--")[0]
    found = {finding.rule for finding in audit(path).findings}
    assert rule in found
    assert found - {rule} <= MAY_FOLLOW.get(path.name, MAY_FOLLOW["schema"] if rule == "schema" else set())


def test_a_digest_kept_elsewhere_tells_the_same_evidence_from_a_forgery():
    """Whoever can write the directory can also seal it again."""
    digest = json.loads((GOOD / "manifest.json").read_text())["digest"]
    assert main(["audit", str(GOOD), "--digest", digest]) == 0
    found = audit(GOOD, digest="0" * 64).findings
    assert [finding.rule for finding in found] == ["manifest-bound"]


@pytest.mark.parametrize("path", JUNIT, ids=lambda path: path.stem)
def test_junit_that_tells_otherwise_is_found(path):
    """A skip shown as a pass, a level typed in, a pass with a failure in it, a case left out, a case told twice."""
    assert {finding.rule for finding in audit(GOOD, path).findings} == {"junit-agrees"}


def test_no_fixture_stands_for_a_rule_that_is_gone():
    """And what is committed is what the generator writes."""
    of_directories = set(rules()) - set(SEAL_RULES)  # seals lie beside: see test_seal.py
    assert {path.stem.split("--")[0] for path in [*BAD, *JUNIT]} == of_directories
    assert of_directories <= {path.stem for path in [*BAD, *JUNIT]}
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "make_evidence_fixtures.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_words_of_the_evidence_do_not_steer_the_terminal():
    """Whoever wrote the record chose them."""
    shown = str(Finding("rule", "record \x1b[2J\r\nrule run", "x" * 9999, "\u202e"))
    assert shown.isprintable()
    assert "\\x1b[2J" in shown
    assert len(shown) < 1100


def test_the_page_about_evidence_lists_the_rules_as_they_are():
    """A rule nobody can read about cannot be argued with."""
    page = (ROOT / "docs" / "evidence.md").read_text()
    assert [rule for rule, sentence in rules().items() if f"| `{rule}` | {sentence} |" not in page] == []


def test_the_page_about_evidence_names_every_rule_and_every_example_for_what_it_shows():
    """One row for each thing that must not pass: the rules that find it, the examples that show it."""
    page = (ROOT / "docs" / "evidence.md").read_text().split("| what must not pass |")[1].split("\n\n")[0]
    rows = [row.split("|")[2:4] for row in page.splitlines()[2:]]
    found_by, examples = (re.findall("`([^`]+)`", " ".join(cells)) for cells in zip(*rows, strict=True))
    assert set(found_by) == set(rules())
    assert sorted(examples) == sorted(path.stem for path in [*BAD, *JUNIT, *SEALS])
    for by, shown in rows:
        named = {name.split("--")[0] for name in re.findall("`([^`]+)`", shown)}
        # The example of a missing seal is that there is none.
        assert named == set(re.findall("`([^`]+)`", by)) - {"seal-there"}


def test_a_long_audit_tells_how_far_it_is(monkeypatch):
    """Every so many records, with the number that the manifest announces."""
    monkeypatch.setattr("parproof.evidence.audit.run.TELL_EVERY", 2)
    told = []
    audit(GOOD, progress=lambda done, total: told.append((done, total)))
    assert told == [(2, 6), (4, 6), (6, 6)]


def test_progress_is_for_eyes_only(capsys):
    """What is piped into a file holds the result and nothing else."""
    assert main(["audit", str(GOOD)]) == 0
    assert capsys.readouterr().err == ""
