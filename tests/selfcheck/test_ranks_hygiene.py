"""Warm processes are as new for every run: settings are put back, ranks with something still running are replaced."""

import os
import signal

import psutil
import pytest

pytestmark = pytest.mark.selfcheck


def balanced(ctx):
    """A program that leaves nothing."""
    import torch
    import torch.distributed as dist

    x = torch.full((2,), float(ctx.rank + 1))
    dist.all_reduce(x)
    return x.tolist()


def changes_its_process(ctx, directory):
    """In every way a program may."""
    import random

    import torch

    os.chdir(directory)
    os.environ["PARPROOF_TEST"] = "left behind"
    os.environ.pop("RANK")
    os.umask(0o777)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_grad_enabled(False)
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    torch.autograd.set_detect_anomaly(True)
    torch.manual_seed(99)
    random.seed(99)


def state_of_its_process(ctx):
    """What a program finds."""
    import random
    import sys

    import numpy as np
    import torch

    os.umask(mask := os.umask(0))
    return {
        "directory": os.getcwd(),
        "variable": os.environ.get("PARPROOF_TEST"),
        "rank": os.environ["RANK"],
        "umask": mask,
        "handler": str(signal.getsignal(signal.SIGTERM)),
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.empty(1).device),
        "grad": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "random": (random.random(), torch.rand(1).item(), float(np.random.rand())),
        "import_path": sys.path[:2],
    }


def test_a_changed_process_is_put_back(ranks, tmp_path):
    """Working directory, environment, handlers and torch's global switches; random numbers start afresh."""
    before = ranks(2).run(state_of_its_process).results
    starts = ranks(2).pool.num_starts
    ranks(2).run(changes_its_process, str(tmp_path))
    assert ranks(2).run(state_of_its_process).results == before
    assert ranks(2).pool.num_starts == starts


def test_ranks_see_what_a_test_changes_around_them(ranks, tmp_path, monkeypatch):
    """Also when they were started before: directory, variables and import path of the pytest process."""
    ranks(2).run(balanced)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARPROOF_TEST", "set by the test")
    monkeypatch.setenv("RANK", "77")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen = ranks(2).run(state_of_its_process).results[1]
    assert (seen["directory"], seen["variable"], seen["rank"]) == (str(tmp_path), "set by the test", "1")
    assert seen["import_path"][0] == str(tmp_path)


def leaves_a_thread(ctx):
    """In rank 1."""
    import threading
    import time

    if ctx.rank == 1:
        threading.Thread(target=time.sleep, args=(60,), name="lingers", daemon=True).start()


def leaves_a_process(ctx):
    """In rank 1, in a session of its own."""
    import subprocess

    if ctx.rank == 1:
        subprocess.Popen(["sleep", "61"], start_new_session=True)


@pytest.mark.parametrize(
    ("program", "what"), [(leaves_a_thread, "thread lingers"), (leaves_a_process, "(sleep)")]
)
def test_a_rank_with_something_still_running_is_replaced(program, what, ranks):
    """A thread that lingers could make calls in the next test. It is written down, not held against the program."""
    ranks(2).run(balanced)
    starts = ranks(2).pool.num_starts
    run = ranks(2).run(program)
    assert what in run.observation["leftovers"][0]
    assert ranks(2).run(balanced).results == [[3.0, 3.0]] * 2
    assert ranks(2).pool.num_starts == starts + 1


def starts_processes(ctx):
    """One in the rank's session, one in its own, one whose parent has ended."""
    import subprocess

    plain = subprocess.Popen(["sleep", "62"])
    apart = subprocess.Popen(["sleep", "63"], start_new_session=True)
    shell = "setsid sleep 64 > /dev/null & echo $!"
    orphan = subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE, check=True, timeout=10)
    return [plain.pid, apart.pid, int(orphan.stdout)]


def test_what_a_program_started_is_gone_when_its_run_is_over(ranks):
    """Not only at the end of the session: it would disturb the tests that follow."""
    run = ranks(2).run(starts_processes)
    pids = [pid for result in run.results for pid in result]
    assert len(run.observation["leftovers"]) >= 6
    _, alive = psutil.wait_procs([psutil.Process(p) for p in pids if psutil.pid_exists(p)], timeout=5)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
