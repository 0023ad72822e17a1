"""Somebody else's test file with one line of ours, `pytest_plugins = ["parproof.plugin"]`, gets every guarantee.

The child pytest runs outside the checkout, on the installed package, with programs of its own.
"""

import re

import pytest

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(240)]

STRANGER = '''
import os, signal, time
import pytest

def program(ctx, fault):
    import torch
    import torch.distributed as dist

    x = torch.full((3,), float(ctx.rank))
    if ctx.rank == 1:
        if fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "exit_0":
            os._exit(0)
        if fault == "exit_3":
            os._exit(3)
        if fault == "skip":
            pytest.skip("no reason")
        if fault == "raise":
            raise ValueError("broken here")
        if fault == "system_exit":
            raise SystemExit(0)
        while fault == "loop":
            pass
        if fault == "sleep":
            time.sleep(100)
    if not (fault == "never_joins" and ctx.rank == 1):
        dist.all_reduce(x)
    return x.tolist()

def alone(ctx, fault):
    """No collective in which anybody would notice."""
    if ctx.rank == 1:
        program(ctx, fault)

FAULTS = ["killed", "exit_0", "exit_3", "skip", "raise", "system_exit", "loop", "sleep", "never_joins"]

@pytest.mark.parametrize("fault", FAULTS)
def test_with_peers(fault, ranks):
    ranks(2).run(program, "none")
    ranks(2, deadline_s=1).run(program, fault)

@pytest.mark.parametrize("fault", FAULTS[:-1])
def test_alone(fault, ranks):
    ranks(2).run(program, "none")
    ranks(2, deadline_s=1).run(alone, fault)

def test_next(ranks):
    assert ranks(2).run(program, "none").results == [[1.0] * 3] * 2

def all_skip(ctx):
    pytest.skip("all of us")

def test_all_skip(ranks):
    ranks(2).run(all_skip)
'''
WORDS = {
    "killed": "was killed by SIGKILL before it reported",
    "exit_0": "exited with code 0 before it reported",
    "exit_3": "exited with code 3 before it reported",
    "skip": "skipped alone (no reason) while rank 0 ran",
    "raise": "ValueError: broken here",
    "system_exit": "SystemExit: 0",
    "loop": "in program",
    "sleep": "in program",
    "never_joins": "returned without joining all_reduce(sum, float32[3])",
}


@pytest.mark.parametrize("more", [(), ("-n", "2")], ids=["one_process", "xdist"])
def test_every_fault_of_a_rank_is_a_failure_that_names_it(more, pytester):
    """17 faults, each followed by a run that works inside the next test; a healthy test and a skip."""
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile(test_stranger=STRANGER)
    result = pytester.runpytest_subprocess("-rfs", "-p", "no:cacheprovider", "--timeout", "60", *more)
    result.assert_outcomes(passed=1, failed=17, skipped=1)
    result.stdout.fnmatch_lines(["*all of us*"])
    output = result.stdout.str()
    for test in ("test_with_peers", "test_alone"):
        for fault, words in WORDS.items():
            if (test, fault) == ("test_alone", "never_joins"):
                continue
            named = rf"_ {test}\[{fault}\] _(?:.|\n)*?RankFailure: rank 1 of 2: [^\n]*{re.escape(words)}"
            assert re.search(named, output), f"{test}[{fault}]"
    assert "Timeout" not in output, "no diagnosis came from pytest-timeout"
