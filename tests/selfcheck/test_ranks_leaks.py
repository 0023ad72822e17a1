"""After a pytest run nothing is left: no process, no listening socket, no directory, no shared memory, no descriptor."""

import os
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(240)]

FAULTS = """
import os, signal, subprocess
import pytest

def program(ctx, fault=None):
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(4))
    if ctx.rank == 1 and fault == "leaves":
        subprocess.Popen(["sleep", "600"])
        subprocess.Popen(["sleep", "600"], start_new_session=True)
    if ctx.rank == 1 and fault == "dies_and_leaves":
        if os.fork() == 0:
            os.setsid()
            signal.pause()
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        os._exit(3)
    if ctx.rank == 1 and fault == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    while ctx.rank == 1 and fault == "loops":
        pass
    return torch.ones(1000)

@pytest.mark.parametrize("fault", [None, "leaves"])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_good(world, fault, ranks):
    ranks(world).run(program, fault)

@pytest.mark.parametrize("fault", ["dies_and_leaves", "dies", "loops"])
def test_bad(fault, ranks):
    ranks(2).run(program)
    ranks(2, deadline_s=1).run(program, fault)
"""


def traces():
    """What a session could leave behind on this machine, by name."""
    found = {f"shm {path.name}" for path in Path("/dev/shm").iterdir()}
    found |= {f"directory {path.name}" for path in Path(tempfile.gettempdir()).glob("parproof-*")}
    return found


def processes_of(session):
    """Processes whose environment carries the mark, and their listening sockets."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("LEAK_TEST") == session and process.status() != psutil.STATUS_ZOMBIE:
                listening = [c for c in process.net_connections() if c.status == psutil.CONN_LISTEN]
                found.append((process.pid, process.name(), listening))
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("more", [(), ("-n", "2")], ids=["one_process", "xdist"])
def test_a_session_leaves_nothing(more, pytester, monkeypatch, tmp_path):
    """With runs that fail, hang, and start processes that try to escape into sessions of their own."""
    monkeypatch.setenv("LEAK_TEST", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = traces()
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile(test_leaks=FAULTS)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--timeout", "100", *more)
    result.assert_outcomes(passed=6, failed=3)
    end = time.monotonic() + 10
    while processes_of(str(tmp_path)) and time.monotonic() < end:
        time.sleep(0.05)
    assert processes_of(str(tmp_path)) == []
    assert {trace for trace in traces() - before if "torch" in trace or "parproof" in trace} == set()


def small(ctx, fail):
    """A small program, which fails when asked to."""
    import torch
    import torch.distributed as dist

    x = torch.ones(4)
    dist.all_reduce(x)
    if fail and ctx.rank == 0:
        raise ValueError
    return x


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors through /proc")
def test_descriptors_of_the_pytest_process_stay_constant_over_200_runs(ranks):
    """Among them runs that fail and rebuild the pool, fresh pools, and groups made anew."""
    ranks(2).run(small, False)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(200):
        try:
            ranks(2, fresh=number % 50 == 7, ledger=number % 10 != 3).run(small, number % 20 == 5)
        except AssertionError:
            assert number % 20 == 5
            ranks(2).run(small, False)
    assert len(os.listdir("/proc/self/fd")) == before
