"""A test that a plugin runs again: every attempt has its record, and a failure stays one."""

import json

import pytest

from parproof.evidence.attempts import SEVERITY, Ending, Tally
from parproof.evidence.audit import audit
from parproof.evidence.status import table

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(180)]

# Runs a failed test up to twice more; what it logs of the attempts before the last is the plugin's own affair.
RETRYING = """
pytest_plugins = ["parproof.plugin"]
import pytest
from _pytest.runner import runtestprotocol

LOGGED = {logged!r}

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for attempt in range(3):
        if attempt:
            item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        again = attempt < 2 and any(report.failed for report in reports)
        for report in reports:
            if again and report.failed:
                report.outcome = "rerun"
            if not again or LOGGED == "all":
                hook.pytest_runtest_logreport(report=report)
        if not again:
            break
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
"""
CASES = """
import pathlib, pytest, torch.distributed as dist

def tried(name, tmp=pathlib.Path(__file__).parent):
    with open(tmp / name, "a") as file:
        file.write("x")
    return (tmp / name).stat().st_size

def meets(ctx): dist.barrier()

def test_flaky(ranks, evidence):
    attempt = tried("flaky")
    evidence.measured(**{"attempt_%d" % attempt: attempt})
    for _ in range(attempt):
        ranks(2).run(meets)
    assert attempt == 2, "at first it is wrong"

def test_wrong(evidence): assert False, "always"

def test_set_up(blocks_once): pass

@pytest.fixture
def blocks_once():
    assert tried("set-up") == 2

def test_right(evidence): pass
"""


@pytest.fixture(params=["all", "last"])
def project(request, pytester):
    """A stranger's project with a plugin that retries, and logs all attempts or the last one only."""
    pytester.makeconftest(RETRYING.format(logged=request.param))
    pytester.makepyfile(test_cases=CASES)
    return pytester


def attempts(directory):
    """(test, attempt, status) of each record in order, by test."""
    records = [json.loads(line) for line in (directory / "records.jsonl").read_text().splitlines()]
    return sorted(
        (r["identity"]["nodeid"].split("::")[1], r.get("attempt", 1), r["conclusion"]["status"])
        for r in records
    )


@pytest.mark.parametrize("workers", [0, 2], ids="n{}".format)
def test_a_retry_hides_no_failure(project, workers):
    """Each attempt is a record, the worst counts, the run is red, and the evidence is sound."""
    result = project.runpytest_subprocess(f"-n{workers}", "--evidence", "out", "--junitxml", "j.xml")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    out = project.path / "out"
    assert attempts(out) == [
        ("test_flaky", 1, "failed"),
        ("test_flaky", 2, "ok"),
        ("test_right", 1, "ok"),
        ("test_set_up", 1, "blocked"),
        ("test_set_up", 2, "ok"),
        *[("test_wrong", attempt, "failed") for attempt in (1, 2, 3)],
    ]
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["flaky"] == ["test_cases.py::test_flaky", "test_cases.py::test_set_up"]
    assert manifest["counts"] == {"ok": 1, "failed": 2, "blocked": 1, "skipped": 0}
    result.stdout.fnmatch_lines(["flaky: test_cases.py::test_flaky *"])
    assert audit(out, project.path / "j.xml").findings == []


def test_an_attempt_holds_nothing_of_the_one_before(project):
    """Neither its measurements nor its runs."""
    project.runpytest_subprocess("-k", "flaky", "--evidence", "out")
    lines = (project.path / "out" / "records.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert [record["measurements"] for record in found] == [{"attempt_1": 1}, {"attempt_2": 2}]
    assert [len(record["observation"]["runs"]) for record in found] == [1, 2]


def test_a_run_that_only_a_retry_made_green_is_red(project):
    """pytest alone would end with 0."""
    project.makepyfile(test_cases="import pathlib\n" + CASES.split("def meets")[0] + FLAKY_ONLY)
    assert project.runpytest_subprocess().ret == pytest.ExitCode.OK
    project.path.joinpath("flaky").unlink()
    assert project.runpytest_subprocess("--evidence", "out").ret == pytest.ExitCode.TESTS_FAILED
    assert json.loads((project.path / "out" / "manifest.json").read_text())["exit_status"] == 1
    assert audit(project.path / "out").findings == []


FLAKY_ONLY = "def test_flaky(): assert tried('flaky') == 2\n"


@pytest.mark.parametrize("workers", [0, 1], ids="n{}".format)
def test_two_tests_of_one_name_are_attempts_of_one(pytester, workers):
    """A file that is named twice is collected twice with --keep-duplicates."""
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile(test_cases="import pathlib\n" + CASES.split("def meets")[0] + FLAKY_ONLY)
    options = ["--keep-duplicates", "test_cases.py", "test_cases.py", f"-n{workers}", "--evidence", "out"]
    assert pytester.runpytest_subprocess(*options).ret == pytest.ExitCode.TESTS_FAILED
    assert attempts(pytester.path / "out") == [("test_flaky", 1, "failed"), ("test_flaky", 2, "ok")]
    assert audit(pytester.path / "out").findings == []


@pytest.mark.parametrize("first", SEVERITY)
@pytest.mark.parametrize("second", SEVERITY)
def test_the_worst_attempt_counts_in_either_order(first, second):
    """failed, blocked, skipped, ok: a skip is never a pass, also where another attempt passed."""
    tally = Tally()
    tally.add("t", Ending(first, "none"))
    tally.add("t", Ending(second, "none"))
    worst = min(first, second, key=SEVERITY.index)
    assert tally.counts == {s: int(s == worst) for s in ("ok", "failed", "blocked", "skipped")}
    assert tally.flaky == (["t"] if first != second else [])
    assert bool(tally.unexpected) == bool({first, second} & {"failed", "blocked"})


def test_a_known_defect_does_not_excuse_another_failure():
    """Expected once, unexpected once: the run is red."""
    tally = Tally()
    tally.add("t", Ending("failed", "none", "pytorch#1"))
    assert (tally.unexpected, tally.flaky) == (set(), [])
    tally.add("t", Ending("failed", "none"))
    assert (tally.unexpected, tally.flaky) == ({"t"}, ["t"])
    assert tally.worst["t"].report is None


def test_the_state_of_an_experiment_counts_tests_and_not_attempts(pytester):
    """One test that failed once and passed once is one failure."""
    pytester.makeconftest(RETRYING.format(logged="all"))
    marked = "import pathlib, pytest\n" + CASES.split("def meets")[0]
    marked += '@pytest.mark.experiment("PAR-REPLICA-ROUTING")\n@pytest.mark.claim("C1")\n' + FLAKY_ONLY
    pytester.makepyfile(test_cases=marked)
    pytester.runpytest_subprocess("--evidence", "out")
    assert audit(pytester.path / "out").findings == []
    rows = {row["id"]: row["state"] for row in table(pytester.path / "out", checkout=None)}
    assert rows["PAR-REPLICA-ROUTING"] == "none: 1 failed"
