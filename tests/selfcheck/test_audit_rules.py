"""The audit finds every kind of lie, names it, and finds nothing in good evidence."""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parproof.cli import main
from parproof.evidence.audit import Finding, Unusable, audit, reading, rules
from parproof.evidence.audit.sealed import SEAL_RULES

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures" / "evidence"
GOOD = FIXTURES / "good"
# A record that breaks its schema is not judged further, so it is missing for the rules about all records.
# Not told by a directory alone: they have files of their own below fixtures/evidence.
BESIDE = {"junit-agrees", *SEAL_RULES}
MAY_FOLLOW = {"schema": {"chain", "complete", "counts"}}


@pytest.fixture
def copied(tmp_path):
    """A copy of the good evidence that may be spoilt."""
    return Path(shutil.copytree(GOOD, tmp_path / "evidence"))


def test_good_evidence_has_no_finding():
    """Also against its JUnit file."""
    result = audit(GOOD, FIXTURES / "junit" / "good.xml")
    assert result.findings == []
    assert (result.num_records, result.exit_status) == (6, 0)


@pytest.mark.parametrize("rule", sorted(set(rules()) - BESIDE))
def test_each_rule_finds_the_evidence_that_breaks_it_and_no_other(rule):
    """One directory a rule, sealed again by a liar who knows the format."""
    found = {finding.rule for finding in audit(FIXTURES / "bad" / rule).findings}
    assert rule in found
    assert found - {rule} <= MAY_FOLLOW.get(rule, set())


def test_a_digest_kept_elsewhere_tells_the_same_evidence_from_a_forgery():
    """Whoever can write the directory can also seal it again."""
    digest = json.loads((GOOD / "manifest.json").read_text())["digest"]
    assert main(["audit", str(GOOD), "--digest", digest]) == 0
    found = audit(GOOD, digest="0" * 64).findings
    assert [finding.rule for finding in found] == ["manifest-bound"]


def test_junit_that_tells_otherwise_is_found():
    """A skip shown as a pass, and a level typed into a property."""
    findings = audit(GOOD, FIXTURES / "junit" / "junit-agrees.xml").findings
    assert [finding.rule for finding in findings] == ["junit-agrees"] * 2


def test_no_fixture_stands_for_a_rule_that_is_gone():
    """And what is committed is what the generator writes."""
    assert {p.name for p in (FIXTURES / "bad").iterdir()} == set(rules()) - BESIDE
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "make_evidence_fixtures.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@settings(max_examples=150, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**9))
def test_whatever_byte_is_changed_is_found(seed, tmp_path_factory):
    """Edited, cut, grown, emptied or removed: any file, anywhere."""
    chance = random.Random(seed)
    directory = Path(shutil.copytree(GOOD, tmp_path_factory.mktemp("e") / "evidence"))
    path = chance.choice(sorted(directory.iterdir()))
    data = bytearray(path.read_bytes())
    place = chance.randrange(len(data))
    how = chance.choice(["edit", "cut", "grow", "empty", "remove"])
    if how == "edit":
        data[place] ^= 1 << chance.randrange(7)
    elif how == "cut":
        del data[place : place + chance.randrange(1, 40)]
    elif how == "grow":
        data[place:place] = b" x"
    path.write_bytes(b"" if how == "empty" else bytes(data))
    if how == "remove":
        path.unlink()
    with contextlib.suppress(Unusable):
        assert audit(directory).findings, f"{how} at {place} of {path.name}"


@pytest.mark.parametrize(
    "text",
    [
        b"not json",
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 40 + b"}",
        b"[" * 100_000 + b"]" * 100_000,
        b"[" * 60 + b"]" * 60,
        '{"a": "é"}'.encode("latin-1"),
        b'{"a": 1, "a": 2}',
    ],
    ids=["text", "nan", "infinity", "long_integer", "deep", "nested", "latin1", "twice"],
)
def test_a_record_that_is_no_json_is_a_finding_and_never_a_traceback(text, copied):
    """One bad line costs that record, not the audit."""
    with (copied / "records.jsonl").open("ab") as file:
        file.write(text + b"\n")
    assert {"schema", "files-bound"} <= {finding.rule for finding in audit(copied).findings}
    assert main(["audit", str(copied)]) == 1


def test_a_line_without_end_is_passed_over(copied, monkeypatch):
    """The rest of the line is not read into memory."""
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 1 << 16)
    with (copied / "records.jsonl").open("ab") as file:
        file.write(b"x" * (1 << 20))
    assert any("line too long" in finding.supported for finding in audit(copied).findings)


@pytest.mark.parametrize("name", ["manifest.json", "records.jsonl", "environment.json"])
def test_a_missing_part_makes_the_directory_unusable(name, copied, capsys):
    """Exit status 2, one line, no traceback."""
    (copied / name).unlink()
    assert main(["audit", str(copied)]) == 2
    assert name in capsys.readouterr().err


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[" * 5000])
def test_a_manifest_that_cannot_be_read_makes_it_unusable(text, copied, capsys):
    """There is nothing to compare with."""
    (copied / "manifest.json").write_bytes(text)
    assert main(["audit", str(copied)]) == 2
    assert "manifest.json" in capsys.readouterr().err


def test_nothing_outside_the_directory_is_opened(copied, tmp_path):
    """A link is named as one; a name that climbs out is a file that is not there."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    os.symlink(secret, copied / "link")
    manifest = json.loads((copied / "manifest.json").read_text())
    manifest["files"]["a/../../secret"] = {"sha256": "0" * 64, "bytes": 6}
    manifest["files"]["link"] = {"sha256": "0" * 64, "bytes": 6}
    (copied / "manifest.json").write_text(json.dumps(manifest))
    told = {f.record: f.supported for f in audit(copied).findings if f.rule == "files-bound"}
    assert told == {"a/../../secret": "no such file", "link": "a link or a special file"}


def test_words_of_the_evidence_do_not_steer_the_terminal():
    """Whoever wrote the record chose them."""
    shown = str(Finding("rule", "record \x1b[2J\r\nrule run", "x" * 9999, "\u202e"))
    assert shown.isprintable()
    assert "\\x1b[2J" in shown
    assert len(shown) < 1100


def test_an_entity_hidden_by_its_encoding_is_refused(tmp_path):
    """UTF-16 hides a declaration from whoever looks for its bytes."""
    path = tmp_path / "junit.xml"
    path.write_bytes('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'.encode("utf-16"))
    with pytest.raises(Unusable):
        audit(GOOD, path)


@pytest.mark.parametrize("text", ["", "<a", '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'])
def test_junit_that_cannot_be_read_is_unusable(text, tmp_path, capsys):
    """Entities are refused before they are expanded."""
    path = tmp_path / "junit.xml"
    path.write_text(text)
    assert main(["audit", str(GOOD), "--junit", str(path)]) == 2
    assert "junit.xml" in capsys.readouterr().err


def test_the_page_about_evidence_lists_the_rules_as_they_are():
    """A rule nobody can read about cannot be argued with."""
    page = (ROOT / "docs" / "evidence.md").read_text()
    assert [rule for rule, sentence in rules().items() if f"| `{rule}` | {sentence} |" not in page] == []


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
