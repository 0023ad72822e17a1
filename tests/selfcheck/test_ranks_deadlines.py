"""The diagnosis comes before pytest-timeout fires; interrupted and killed sessions leave nothing behind."""

import glob
import os
import signal
import subprocess
import sys
import tempfile
import time

import psutil
import pytest

from parproof.ranks.failure import RankFailure

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(200)]

HANGS = """
import os, time, pytest

def hang(ctx):
    print("ready", ctx.rank, flush=True)
    while True:
        pass

def ok(ctx):
    return ctx.rank

def test_warm(ranks):
    assert ranks(2).run(ok).results == [0, 1]

@pytest.mark.timeout(3)
def test_marker(ranks):
    ranks(2).run(hang)

def test_option(ranks):
    ranks(2).run(hang)

def test_next(ranks):
    assert ranks(2).run(ok).results == [0, 1]
"""


def interruptible():
    """A child of a shell's background job would ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def stranger(pytester):
    """A test file with programs that hang, outside the checkout."""
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile(test_hangs=HANGS)
    return pytester


@pytest.mark.parametrize("method", ["signal", "thread"])
def test_the_diagnosis_is_printed_before_pytest_timeout_fires(method, stranger):
    """A limit of 3 s by marker; where the limit is found otherwise is the next test's matter."""
    arguments = ("--timeout-method", method, "--timeout", "120", "-k", "not option")
    result = stranger.runpytest_subprocess("-p", "no:cacheprovider", *arguments)
    result.assert_outcomes(passed=2, failed=1)
    output = result.stdout.str() + result.stderr.str()
    assert "rank 0 of 2: did not report within 2." in output
    assert "Timeout" not in output


def test_a_session_without_pytest_timeout_has_a_deadline_of_its_own(stranger):
    """--parproof-deadline, also with the plugin switched off."""
    arguments = ("-p", "no:timeout", "-p", "no:xdist", "--parproof-deadline", "1.5", "-k", "option or next")
    result = stranger.runpytest_subprocess("-p", "no:cacheprovider", *arguments)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*rank 0 of 2: did not report within 1.5 s; is at *in hang*"])


@pytest.mark.parametrize(
    ("options", "ini", "environment", "expected"),
    [
        ((), "", "", None),
        (("--timeout", "7"), "timeout = 5", "6", 7.0),
        ((), "timeout = 5", "6", 6.0),
        ((), "timeout = 5", "", 5.0),
        (("--timeout", "0"), "timeout = 5", "", 0.0),
        (("-p", "no:timeout"), "", "", None),
    ],
)
def test_the_limit_is_found_where_pytest_timeout_finds_it(
    options, ini, environment, expected, pytester, monkeypatch
):
    """Marker before option before environment before ini; 0 switches it off."""
    if environment:
        monkeypatch.setenv("PYTEST_TIMEOUT", environment)
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makeini(f"[pytest]\n{ini}\n")
    pytester.makepyfile(
        f"""
        from parproof.plugin.ranks import timeout_of
        def test_it(request): assert timeout_of(request.node) == {expected}
        """
    )
    pytester.runpytest_inprocess("-p", "no:cacheprovider", *options).assert_outcomes(passed=1)


def tree_of(pid):
    """The processes below a pytest process, once its ranks are at work."""
    return psutil.Process(pid).children(recursive=True)


def wait_for(condition, limit_s=60.0):
    """Poll; events of other processes cannot be waited for otherwise."""
    end = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.05)
    return found


def hanging_session(stranger, directory):
    """(pytest process, its descendants) while two ranks loop; temporary files go into `directory`."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-k",
        "option",
        "-p",
        "no:cacheprovider",
        "--timeout",
        "0",
    ]
    environment = os.environ | {"TMPDIR": str(directory)}
    process = subprocess.Popen(
        command, cwd=stranger.path, env=environment, stdout=subprocess.DEVNULL, preexec_fn=interruptible
    )
    ready = wait_for(lambda: len(glob.glob(f"{directory}/parproof-ranks-*/rank?.journal")) == 2)
    assert ready
    time.sleep(0.3)
    return process, tree_of(process.pid)


def test_ctrl_c_ends_the_ranks_and_leaves_nothing(stranger, tmp_path):
    """Two ranks loop in Python at that moment."""
    process, family = hanging_session(stranger, tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == pytest.ExitCode.INTERRUPTED
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []
    assert glob.glob(f"{tmp_path}/parproof-*") == []


def test_a_killed_session_takes_its_ranks_along_and_the_next_one_cleans_up(stranger, tmp_path, monkeypatch):
    """Nobody can act in a process that got SIGKILL: the kernel ends the ranks, the next pool sweeps the files."""
    process, family = hanging_session(stranger, tmp_path)
    process.kill()
    process.wait(10)
    _, alive = psutil.wait_procs(
        family, timeout=30
    )  # about a second; much longer on a machine that is overloaded
    assert alive == []
    assert len(glob.glob(f"{tmp_path}/parproof-ranks-*")) == 1

    from parproof.ranks.directory import PrivateDirectory

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine, other = PrivateDirectory(), PrivateDirectory()
    assert sorted(glob.glob(f"{tmp_path}/parproof-ranks-*")) == sorted([mine.path, other.path])
    mine.remove()
    other.remove()
    assert glob.glob(f"{tmp_path}/parproof-ranks-*") == []


def test_loading_torch_is_said_with_v_only(stranger):
    """It takes seconds, once a session. A machine may be quick: here every start counts as slow."""
    stranger.makeconftest(
        """
        import parproof.ranks.pool
        pytest_plugins = ["parproof.plugin"]
        parproof.ranks.pool.SLOW_START_S = 0.0
        """
    )
    said = "parproof: loading torch for the ranks, once a session*"
    loud = stranger.runpytest_subprocess("-v", "-k", "warm", "--timeout", "60")
    quiet = stranger.runpytest_subprocess("-k", "warm", "--timeout", "60")
    loud.stdout.fnmatch_lines([said])
    quiet.stdout.no_fnmatch_line(f"*{said}")


def waits_in_vain(ctx, timeout_s):
    """Rank 1 returns when the others are there; they wait for it, as long as their backend does."""
    import datetime

    import torch
    import torch.distributed as dist

    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=timeout_s), ctx.group)
    store = dist.distributed_c10d._get_default_store()
    if ctx.rank == 1:
        store.wait(["there/0", "there/2"])
    else:
        x = torch.ones(4)
        store.set(f"there/{ctx.rank}", "")
        dist.all_reduce(x)


@pytest.mark.parametrize(("patience_s", "timeout_s", "kind"), [(0.0, 1.9, "waits"), (20.0, 4, "raised")])
def test_a_backend_is_heard_as_long_as_the_test_has_patience(patience_s, timeout_s, kind, ranks):
    """The ledgers have proved by then that the run cannot end; rank 1 is the cause either way. Two seconds if not asked."""
    with pytest.raises(RankFailure) as caught:
        ranks(3, deadline_s=60, patience_s=patience_s).run(waits_in_vain, timeout_s)
    assert caught.value.kinds == {0: kind, 1: "absent", 2: kind}
