"""What is not exported: unsound evidence, mechanisms, projects of which nothing ran; and what is never written."""

import re
import shutil
from pathlib import Path

import pytest

from parproof import registry
from parproof.cli import main
from parproof.errors import UsageError
from parproof.evidence.exchange import exporting

pytestmark = pytest.mark.selfcheck
GOOD = Path(__file__).parents[2] / "fixtures" / "evidence" / "good"
BAD = GOOD.parent / "bad"
PROJECT = "PAR-DISTRIBUTED-INFERENCE"


@pytest.mark.parametrize("rule", ["level-computed", "chain", "counts", "files-bound"])
def test_evidence_that_does_not_pass_its_audit_is_not_handed_on(rule, tmp_path, capsys):
    """And nothing is written."""
    output = tmp_path / "out"
    command = ["export", str(BAD / rule), "--format", "distributed-benchmark/v1", "--output", str(output)]
    assert main(command) == 2
    assert re.search(rf"does not pass its audit \(\d+ findings?\), first: {rule}", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "experiment", [e.id for e in registry.load().experiments if e.kind != "project"] + ["PAR-NOTHING"]
)
def test_only_projects_have_a_role(experiment, tmp_path):
    """A mechanism under a project's name would be its result."""
    with pytest.raises(UsageError, match="one of PAR-TRAINING-STATE"):
        exporting.export(GOOD, tmp_path / "out", [experiment])
    assert not (tmp_path / "out").exists()


def test_a_project_of_which_nothing_ran_is_refused_by_name(tmp_path, capsys):
    """No document, rather than an empty one."""
    command = ["export", str(GOOD), "--format", "distributed-benchmark/v1", "--output", str(tmp_path / "out")]
    assert main(command) == 0
    assert f"{PROJECT}: not written, it did not run, and of its mechanisms neither" in capsys.readouterr().out
    with pytest.raises(UsageError, match="nothing to export"):
        exporting.export(GOOD, tmp_path / "again", [PROJECT])


def test_nothing_is_overwritten_and_evidence_never_grows_a_file(tmp_path):
    """A full directory, a file, a link, and a place inside the evidence."""
    evidence = Path(shutil.copytree(GOOD, tmp_path / "evidence"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").write_text("kept")
    (tmp_path / "file").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    before = sorted(tmp_path.rglob("*"))
    for name in ("full", "file", "link", "evidence/out"):
        with pytest.raises(UsageError, match="--output"):
            exporting.export(evidence, tmp_path / name)
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_half_written_stays(tmp_path, monkeypatch):
    """A disk that is full in the middle of it."""
    calls = []
    monkeypatch.setattr("os.fsync", lambda descriptor: calls.append(descriptor) or (len(calls) > 1 and 1 / 0))
    with pytest.raises(ZeroDivisionError):
        exporting.export(GOOD, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
