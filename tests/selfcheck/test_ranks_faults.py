"""Every way in which one rank of three can go wrong is a failure that names it first, and the next run works."""

import os
import re
import signal
import time

import pytest

from parproof.ranks.failure import RankFailure

pytestmark = pytest.mark.selfcheck
WORLD = 3
DEADLINE_S = 1.5


def sum_of_ranks(ctx):
    """What a healthy pool answers."""
    import torch
    import torch.distributed as dist

    x = torch.full((4,), float(ctx.rank))
    dist.all_reduce(x)
    return x.tolist()


def rank_1_misbehaves(ctx, how):
    """One good call, then rank 1 does something else where the others join a second one."""
    import torch
    import torch.distributed as dist

    x = torch.ones(4)
    dist.all_reduce(x)
    if ctx.rank == 1:
        globals()[how]()
    if not (ctx.rank == 1 and how == "returns_early"):
        dist.all_reduce(x)


def is_killed():
    """As the kernel does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def crashes():
    """A segmentation fault in C."""
    import ctypes

    ctypes.string_at(0)


def aborts():
    """As C++ does with an exception nobody catches."""
    os.abort()


def exits_with_0():
    """An end that looks like success."""
    os._exit(0)


def exits_with_3():
    """An end that looks like failure."""
    os._exit(3)


def raises():
    """An ordinary exception."""
    raise ValueError("first line\nsecond line")


def calls_sys_exit():
    """SystemExit without a code."""
    raise SystemExit


def is_interrupted():
    """As by Ctrl-C."""
    raise KeyboardInterrupt


def skips():
    """While the others run."""
    pytest.skip("not on my watch")


def raises_what_cannot_be_shown():
    """Its text is a trap."""

    class Secret(Exception):
        def __str__(self):
            raise RuntimeError

    raise Secret


def recurses():
    """Without end."""
    recurses()


def loops():
    """In Python."""
    while True:
        pass


def holds_the_interpreter():
    """In C, so that no other thread of Python runs."""
    re.match("(a+)+$", "a" * 60 + "b")


def sleeps():
    """Instead of joining."""
    time.sleep(60)


def is_stopped():
    """No handler runs any more."""
    os.kill(os.getpid(), signal.SIGSTOP)


def takes_the_signal_for_itself():
    """The one that asks for stacks."""
    signal.signal(signal.SIGUSR1, lambda *_: None)
    time.sleep(60)


def returns_early():
    """Nothing to do here: rank_1_misbehaves leaves the call out."""


def sends_another_shape():
    """gloo hangs or aborts."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(5))


def sends_another_dtype():
    """gloo aborts when sizes differ, else the numbers are wrong."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(4, dtype=torch.float64))


def calls_something_else():
    """gloo hangs."""
    import torch
    import torch.distributed as dist

    dist.broadcast(torch.ones(4), 0)


QUICK = {
    "is_killed": "was killed by SIGKILL before it reported; last call 0, all_reduce",
    "crashes": "was killed by SIGSEGV before it reported",
    "aborts": "was killed by SIGABRT before it reported",
    "exits_with_0": "exited with code 0 before it reported",
    "exits_with_3": "exited with code 3 before it reported",
    "raises": "ValueError: first line",
    "calls_sys_exit": "SystemExit",
    "is_interrupted": "KeyboardInterrupt",
    "skips": r"skipped alone \(not on my watch\) while ranks 0, 2 ran",
    "raises_what_cannot_be_shown": "Secret: <its __str__ raised RuntimeError>",
    "recurses": "RecursionError: maximum recursion depth exceeded",
}
AT_THE_DEADLINE = {
    "loops": "has not joined all_reduce.*, in which rank 0 waits; is at .*in loops",
    "holds_the_interpreter": "has not joined all_reduce.*; is at .*in holds_the_interpreter",
    "sleeps": "has not joined all_reduce.*; is at .*in sleeps",
    "is_stopped": "has not joined all_reduce.*; it is stopped",
    "takes_the_signal_for_itself": "has not joined all_reduce.*; is at .*in takes_the_signal_for_itself",
}
BY_THE_LEDGERS = {
    "returns_early": "returned without joining all_reduce.*, in which rank 0 waits",
    "sends_another_shape": r"shape differs at call 1 of group 0: all_reduce\(sum, float32\[5\]\)",
    "sends_another_dtype": r"dtype differs at call 1 of group 0: all_reduce\(sum, float64\[4\]\)",
    "calls_something_else": r"operation differs at call 1 of group 0: broadcast\(float32\[4\], root 0\)",
}


def failure_of(ranks, how, deadline_s):
    """The failure, and the seconds it took; afterwards the pool works."""
    ranks(WORLD).run(sum_of_ranks)
    started = time.monotonic()
    with pytest.raises(RankFailure) as caught:
        ranks(WORLD, deadline_s=deadline_s).run(rank_1_misbehaves, how)
    took_s = time.monotonic() - started
    assert ranks(WORLD).run(sum_of_ranks).results == [[3.0] * 4] * WORLD
    return caught.value, took_s


@pytest.mark.parametrize("how", QUICK)
def test_a_rank_that_ends_is_named_long_before_the_deadline(how, ranks):
    """Its peers fail too, within milliseconds of it; they lost a peer and are named after it."""
    failure, took_s = failure_of(ranks, how, deadline_s=30)
    assert failure.problems[0].rank == 1
    assert str(failure).startswith("rank 1 of 3: ")
    assert re.search(QUICK[how], failure.problems[0].summary)
    assert took_s < 5, "it was not waited for the deadline"


@pytest.mark.parametrize("how", AT_THE_DEADLINE)
def test_a_rank_that_hangs_is_named_with_the_stacks_of_all(how, ranks):
    """The others wait in a collective; whoever has not joined it is the cause. C code does not hide it."""
    failure, took_s = failure_of(ranks, how, DEADLINE_S)
    first, *others = failure.problems
    assert first.rank == 1
    assert re.search(AT_THE_DEADLINE[how], first.summary)
    assert [(p.rank, p.kind) for p in others] == [(0, "waits"), (2, "waits")]
    assert all("in all_reduce" in problem.detail for problem in others)
    assert how == "is_stopped" or how in first.detail
    assert took_s < DEADLINE_S + 2 + 3, "stacks within 2 s; the rest is the pool's restart on a busy machine"


@pytest.mark.parametrize("how", BY_THE_LEDGERS)
def test_calls_that_can_never_meet_are_told_without_waiting_for_the_deadline(how, ranks):
    """gloo would wait for its timeout, abort a process, or give wrong numbers; the ranks' own ledgers tell."""
    failure, took_s = failure_of(ranks, how, deadline_s=60)
    first = failure.problems[0]
    assert first.rank == 1
    assert re.search(BY_THE_LEDGERS[how], first.summary)
    assert took_s < 20


def test_the_text_is_short_and_shows_the_program_only(ranks):
    """One line names rank and cause; the traceback holds no frame of the pool."""
    failure, _ = failure_of(ranks, "raises", deadline_s=30)
    text = str(failure)
    assert "server.py" not in text
    assert "recorder.py" not in text
    assert len(text.splitlines()) < 20
    assert 'in raises\n    raise ValueError("first line\\nsecond line")' in text
