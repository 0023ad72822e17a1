"""What a run could not do is in its evidence: crashes, unread modules, runs that failed; and no place of this machine."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from parproof.errors import UsageError
from parproof.evidence import canonical
from parproof.evidence.audit import audit
from parproof.evidence.audit.reading import parse
from parproof.evidence.environment import source_tree
from parproof.evidence.places import without_places

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(180)]


@pytest.fixture
def project(pytester):
    """A stranger's project."""
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    return pytester


def first_record(directory):
    """The first line of its records."""
    return parse((directory / "records.jsonl").read_bytes().splitlines()[0])


def test_a_test_of_which_nothing_is_known_has_no_level(project):
    """Its worker died; JUnit, written by the controller, says the same."""
    project.makepyfile(test_cases="import os\ndef test_dies(): os._exit(1)\n")
    project.runpytest_subprocess("-n1", "--evidence", "out", "--junitxml", "j.xml")
    end = first_record(project.path / "out")["conclusion"]
    assert (end["status"], end["evidence_level"], end["level_reason"]) == ("blocked", None, "nothing was run")
    assert audit(project.path / "out", project.path / "j.xml").findings == []


def test_a_test_that_is_skipped_after_its_ranks_ran_claims_no_run(project):
    """What a subject lacks may turn out late; a skip observes nothing."""
    project.makepyfile(
        test_cases="import pytest\ndef program(ctx): return ctx.rank\n"
        "def test_skips(ranks):\n    ranks(2).run(program)\n    pytest.skip('not provided')\n"
    )
    project.runpytest_subprocess("--evidence", "out").assert_outcomes(skipped=1)
    record = first_record(project.path / "out")
    assert (record["observation"], record["communication"]["num_runs"]) == (None, 0)
    assert audit(project.path / "out").findings == []


@pytest.mark.parametrize("workers", [0, 2], ids="n{}".format)
def test_a_module_that_cannot_be_read_makes_the_run_incomplete(project, workers):
    """Nobody can count the tests in it."""
    project.makepyfile(test_good="def test_a(): pass\n", test_unreadable="import no_such_module\n")
    options = ["--continue-on-collection-errors", "--evidence", "out"]
    project.runpytest_subprocess(f"-n{workers}", *options)
    told = {(f.record, f.supported) for f in audit(project.path / "out").findings}
    assert ("test_unreadable.py", "it could not be collected") in told


@pytest.mark.parametrize("workers", [0, 2], ids="n{}".format)
def test_a_selection_is_counted(project, workers):
    """Under xdist it is the workers who deselect."""
    project.makepyfile(test_cases="def test_a(): pass\ndef test_b(): pass\ndef test_c(): pass\n")
    project.runpytest_subprocess(f"-n{workers}", "-k", "test_a", "--evidence", "out")
    assert parse((project.path / "out" / "manifest.json").read_bytes())["num_deselected"] == 2


def test_a_run_that_was_seen_to_fail_is_an_observation(project):
    """Failure semantics are what a process group on CPU does show."""
    project.makepyfile(
        test_cases="""
        import os, pytest
        def dies(ctx): os._exit(3) if ctx.rank == 1 else ctx.group.barrier().wait()
        def test_named(ranks):
            with pytest.raises(AssertionError, match="rank 1 of 2"):
                ranks(2).run(dies)
        """
    )
    project.runpytest_subprocess("--evidence", "out")
    record = first_record(project.path / "out")
    assert record["conclusion"]["status"] == "ok"
    assert record["conclusion"]["evidence_level"] == "cpu_process_group"
    assert record["observation"]["failed_runs"][0]["problems"]["1"] == "died"
    assert record["topology"]["world_size"] == 2
    assert audit(project.path / "out").findings == []


def test_what_a_killed_run_left_is_gone_after_the_next(project):
    """SIGKILL leaves no chance to tidy up; nothing is left under the name that was asked for."""
    project.makepyfile(
        test_cases="import os\ndef test_a(): os.kill(os.getpid(), 9 if os.environ.get('DIE') else 0)\n"
    )
    command = [sys.executable, "-m", "pytest", "--evidence", "out"]
    killed = subprocess.run(
        command, cwd=project.path, env={**os.environ, "DIE": "1"}, capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert not (project.path / "out").exists()
    assert subprocess.run(command, cwd=project.path, capture_output=True, check=False).returncode == 0
    assert [p.name for p in project.path.iterdir() if "partial" in p.name] == []


def test_evidence_of_mutants_is_refused(project):
    """A killed mutant passes, which proves no subject."""
    result = project.runpytest_subprocess("--parproof-mutants", "--evidence", "out")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/a/root/tests/x.py: no", "<root>/tests/x.py: no"),
        ("in /a/root.", "in <root>."),
        ("/a/rootless/x /a/root-2", "/a/rootless/x /a/root-2"),
        ("../../away/there/test_x.py::test_a[../y]", "<outside>/there/test_x.py::test_a[../y]"),
        ("tests/../x.py", "tests/../x.py"),
    ],
    ids=["inside", "itself", "longer_name", "outside", "relative"],
)
def test_texts_lose_this_machines_places(text, expected):
    """A path tells who ran it, and makes equal outcomes differ."""
    assert without_places(Path("/a/root"))(text) == expected


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), {1, 2}, object(), 10**30, {True: 1}, [b"x"]],
    ids=["nan", "infinity", "set", "object", "long_integer", "bool_name", "bytes"],
)
def test_only_plain_finite_data_is_evidence(value):
    """A tensor's text or a NaN would be kept as if it were a measurement."""
    with pytest.raises(UsageError, match=r"here"):
        canonical.plain({"a": [value]}, "here")


def test_plain_data_reads_as_it_was_written():
    """Otherwise a digest would not survive reading."""
    value = {"b": (1, 2.5, None, True), 3: "x", "10": "\udcff"}
    assert parse(canonical.dumps(canonical.plain(value, "here")).encode()) == canonical.plain(value, "here")


@pytest.mark.parametrize("workers", [0, 2], ids="n{}".format)
def test_a_trace_is_kept_beside_the_records_and_only_if_it_can_be_opened(project, workers):
    """A level may rest on it only while it is there."""
    project.makepyfile(
        test_cases="""
        import json
        def test_keeps(evidence, tmp_path):
            path = tmp_path / "a.json"
            path.write_text(json.dumps({"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2}]}))
            evidence.keep_trace(path)
        def test_keeps_nothing(evidence, tmp_path):
            path = tmp_path / "b.json"
            path.write_text('{"traceEvents": []}')
            evidence.keep_trace(path)
        """
    )
    result = project.runpytest_subprocess(f"-n{workers}", "--evidence", "out")
    result.stdout.fnmatch_lines(["*b.json with 19 bytes holds no trace that can be opened again*"])
    assert audit(project.path / "out").findings == []
    (kept,) = (project.path / "out" / "artefacts").iterdir()
    kept.unlink()
    assert {f.rule for f in audit(project.path / "out").findings} == {"files-bound", "trace-kept"}


@pytest.mark.parametrize(
    ("marks", "text"),
    [
        ('experiment("PAR-NCCL-COLECTIVE")', "experiment PAR-NCCL-COLECTIVE"),
        ('experiment("PAR-NCCL-COLLECTIVE"), pytest.mark.claim("C99")', "PAR-NCCL-COLLECTIVE/C99"),
        ('claim("C1")', "claim C1 of no experiment"),
    ],
    ids=["experiment", "claim", "no_experiment"],
)
def test_a_marker_that_is_not_registered_is_an_error_here_and_free_elsewhere(project, marks, text):
    """A typing error would drop the test from every table."""
    project.makepyfile(test_cases=f"import pytest\npytestmark = [pytest.mark.{marks}]\ndef test_a(): pass\n")
    assert project.runpytest_subprocess().ret == pytest.ExitCode.OK
    result = project.runpytest_subprocess("-p", "parproof.plugin.registered")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{text}*"])


def test_evidence_in_the_checkout_does_not_change_what_was_tested(tmp_path):
    """Shards of one tree have one fingerprint, also where the first one was written into it."""

    def git(*arguments):
        names = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *names, *arguments], check=True, capture_output=True)

    git("init")
    git("commit", "--allow-empty", "-m", "empty")
    clean = source_tree(tmp_path)
    assert clean["dirty"] is False
    for name in ("out", ".out.partial-123"):
        (tmp_path / name).mkdir()
        for file in ("manifest.json", "records.jsonl"):
            (tmp_path / name / file).write_text("{}")
    assert source_tree(tmp_path) == clean
    (tmp_path / "test_more.py").write_text("")
    assert source_tree(tmp_path)["dirty"] is True
    assert source_tree(tmp_path)["fingerprint"] != clean["fingerprint"]
