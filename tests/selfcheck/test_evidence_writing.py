"""Evidence is written whole or not at all, by the controller only, and passes its own audit."""

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from parproof.errors import UsageError
from parproof.evidence.audit import audit
from parproof.evidence.audit.reading import parse
from parproof.evidence.store import EvidenceStore

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(180)]

CASES = """
import pytest, torch, torch.distributed as dist

def add(ctx):
    x = torch.ones(4) * ctx.rank
    dist.all_reduce(x)
    return x

def fails(ctx):
    if ctx.rank == 1:
        raise ValueError("boom")

@pytest.mark.experiment("PAR-NCCL-COLLECTIVE")
@pytest.mark.claim("C1")
@pytest.mark.parametrize("value", [1, 2])
def test_adds(ranks, evidence, value):
    evidence.on("ones", value=value)
    assert ranks(2).run(add).results[0].tolist() == [1.0] * 4

def test_times(ranks, evidence):
    ranks(2).run(add)
    evidence.timed("all_reduce", [[0.1, 0.2, 0.3], [0.2, 0.1, 0.4]], warmup=1)

def test_rank_fails(ranks):
    ranks(2).run(fails)

def test_plain(): pass
def test_fails(): assert 1 == 2, "plainly wrong"
def test_skips(): pytest.skip("needs patience")

@pytest.fixture
def broken(): raise RuntimeError("no set-up")
def test_blocked(broken): pass

@pytest.mark.xfail(strict=True, reason="expected nonconformance pytorch#1: wrong on strided views")
def test_known(): assert False, "rank 1 of 2: differs"
"""
STATUS = {
    "test_adds[1]": "ok",
    "test_adds[2]": "ok",
    "test_times": "ok",
    "test_rank_fails": "failed",
    "test_plain": "ok",
    "test_fails": "failed",
    "test_skips": "skipped",
    "test_blocked": "blocked",
    "test_known": "failed",
}


def interruptible():
    """A child of a shell's background job would ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def project(pytester):
    """A stranger's project with the cases above."""
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile(test_cases=CASES)
    return pytester


def records(directory):
    """By test name."""
    lines = (directory / "records.jsonl").read_bytes().splitlines()
    return {r["identity"]["nodeid"].split("::")[-1]: r for r in map(parse, lines)}


@pytest.mark.parametrize("workers", [0, 2], ids="n{}".format)
def test_a_run_gives_one_record_a_test_and_passes_its_audit(project, workers):
    """The same under xdist, where workers ship records and only the controller writes."""
    result = project.runpytest_subprocess(f"-n{workers}", "--evidence", "out", "--junitxml", "j.xml")
    assert result.ret == 1
    found = audit(project.path / "out", project.path / "j.xml")
    assert found.findings == []
    by_name = records(project.path / "out")
    assert {name: r["conclusion"]["status"] for name, r in by_name.items()} == STATUS
    assert by_name["test_adds[1]"]["conclusion"]["evidence_level"] == "cpu_process_group"
    assert by_name["test_adds[1]"]["identity"]["tiers"] == ["value"]
    assert by_name["test_plain"]["conclusion"]["evidence_level"] == "cpu_simulation"
    assert by_name["test_known"]["conclusion"]["expected_nonconformance"] == "pytorch#1"
    assert by_name["test_rank_fails"]["conclusion"]["failure"]["rank"] == 1
    assert by_name["test_times"]["time"]["measured"][0]["median_s"] == 0.2
    assert [p.name for p in project.path.iterdir() if "partial" in p.name] == []


def test_junit_tells_level_status_and_reason(project):
    """As properties of the test case; plain tests of a stranger are left alone."""
    project.runpytest_subprocess("--junitxml", "j.xml")
    cases = {c.get("name"): c for c in ElementTree.parse(project.path / "j.xml").iter("testcase")}
    told = {p.get("name"): p.get("value") for p in cases["test_adds[1]"].iter("property")}
    assert told["parproof.level"] == "cpu_process_group"
    assert told["parproof.status"] == "ok"
    assert told["parproof.claims"] == "PAR-NCCL-COLLECTIVE/C1"
    assert "gloo" in told["parproof.reason"]
    assert list(cases["test_plain"].iter("property")) == []


def test_evidence_is_never_overwritten(project):
    """Refused before any test runs, with a usage error."""
    (project.path / "out").mkdir()
    (project.path / "out" / "old").write_text("precious")
    result = project.runpytest_subprocess("--evidence", "out")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*is not empty*expected a new or empty directory*"])
    assert [p.name for p in (project.path / "out").iterdir()] == ["old"]


def test_a_place_that_cannot_be_written_is_refused_at_the_start(project):
    """A file where a folder should be."""
    (project.path / "file").write_text("")
    result = project.runpytest_subprocess("--evidence", "file/out")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_what_cannot_be_sealed_leaves_nothing_and_fails_the_run(project):
    """The directory is taken while the tests run."""
    project.makepyfile(test_cases="def test_takes_the_place():\n    import os; os.makedirs('out/somebody')\n")
    result = project.runpytest_subprocess("--evidence", "out")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines(["*nothing was left*"])
    assert [p.name for p in project.path.iterdir() if "partial" in p.name] == []


def test_an_interrupted_run_says_that_it_is_not_whole(project):
    """Ctrl-C seals what there is; the audit names what is missing."""
    project.makepyfile(
        test_cases="import time\ndef test_a(): pass\ndef test_b():\n    open('ready', 'w'); time.sleep(60)\n"
    )
    command = [sys.executable, "-m", "pytest", "--evidence", "out"]
    process = subprocess.Popen(
        command,
        cwd=project.path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=interruptible,
    )
    end = time.monotonic() + 60
    while not (project.path / "ready").exists() and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == pytest.ExitCode.INTERRUPTED
    assert {finding.rule for finding in audit(project.path / "out").findings} == {"complete"}


def test_a_worker_that_dies_leaves_a_blocked_record(project):
    """Nobody judged, so nothing passed."""
    project.makepyfile(test_cases="import os\ndef test_dies(): os._exit(1)\ndef test_lives(): pass\n")
    project.runpytest_subprocess("-n1", "--evidence", "out")
    by_name = records(project.path / "out")
    assert by_name["test_dies"]["conclusion"]["status"] == "blocked"
    assert by_name["test_lives"]["conclusion"]["status"] == "ok"
    assert audit(project.path / "out").findings == []


def test_a_store_that_is_discarded_leaves_nothing(tmp_path):
    """Not even its hidden sibling."""
    store = EvidenceStore(tmp_path / "out", root=tmp_path, command=[], label="")
    store.open()
    store.discard()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(
    os.geteuid() == 0, reason="requires a user other than root; found root, who may write anywhere"
)
def test_a_folder_without_write_permission_is_refused(tmp_path):
    """Permission bits bind everybody but root."""
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="cannot write"):
        EvidenceStore(tmp_path / "out", root=tmp_path, command=[], label="").open()


def test_the_environment_holds_no_variable_beyond_the_list(project, monkeypatch):
    """Tokens live in the environment."""
    monkeypatch.setenv("SECRET_TOKEN", "do not tell")
    project.makepyfile(test_cases="def test_a(): pass\n")
    project.runpytest_subprocess("--evidence", "out")
    text = "".join(p.read_text() for p in Path(project.path / "out").iterdir())
    assert "do not tell" not in text
    assert json.loads((project.path / "out" / "environment.json").read_text())["machine"]["num_cpus"]
