"""How ranks start: any size and layout, only with the key, through any launcher, and again when one is lost."""

import os
import signal
import socket
import sys
import threading
import time
from multiprocessing.connection import Client

import pytest

from parproof.errors import UsageError
from parproof.ranks.failure import RankFailure

pytestmark = pytest.mark.selfcheck


def who_am_i(ctx):
    """The rank by three witnesses: the context, the environment, the group."""
    import torch
    import torch.distributed as dist

    x = torch.tensor([ctx.rank])
    dist.all_reduce(x)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    return {
        "context": (ctx.rank, ctx.world_size, ctx.local_rank, ctx.local_world_size),
        "environment": tuple(int(os.environ[name]) for name in names),
        "group": (dist.get_rank(), dist.get_world_size()),
        "host": ctx.host,
        "sum": x.item(),
        "pid": os.getpid(),
    }


@pytest.mark.parametrize("world", range(1, 9))
def test_every_world_size_from_1_to_8_works(world, ranks):
    """Odd ones too, and more ranks than cores."""
    for rank, seen in enumerate(ranks(world).run(who_am_i).results):
        assert seen["context"] == seen["environment"] == (rank, world, rank, world)
        assert seen["group"] == (rank, world)
        assert seen["sum"] == world * (world - 1) // 2


@pytest.mark.parametrize(
    ("world", "per_host", "local", "sizes"),
    [
        (4, 2, [0, 1, 0, 1], [2, 2, 2, 2]),
        (5, 2, [0, 1, 0, 1, 0], [2, 2, 2, 2, 1]),
        (3, 1, [0, 0, 0], [1, 1, 1]),
    ],
)
def test_rank_and_local_rank_can_differ(world, per_host, local, sizes, ranks):
    """Emulated hosts, which the run says of itself."""
    run = ranks(world, ranks_per_host=per_host).run(who_am_i)
    assert [seen["context"][2] for seen in run.results] == local
    assert [seen["environment"][3] for seen in run.results] == sizes
    assert [seen["host"] for seen in run.results] == [f"host{rank // per_host}" for rank in range(world)]
    assert run.observation["host_kind"] == "emulated"
    assert [r["local_rank"] for r in run.observation["ranks"]] == local


def test_an_emulated_host_sees_its_own_gpus_only(monkeypatch):
    """So cuda:LOCAL_RANK is another GPU for every rank, also where only some are visible."""
    from parproof.ranks.places import Places

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    places = Places(4, 2, "cuda")
    visible = [places.assignment(rank, "nccl", "").visible_devices for rank in range(4)]
    assert visible == ["0,1", "0,1", "2,3", "2,3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert Places(4, 2, "cuda").assignment(3, "nccl", "").visible_devices == "6,7"
    assert Places(4, 4, "cuda").assignment(3, "nccl", "").visible_devices is None


@pytest.mark.parametrize(("world", "per_host"), [(0, None), (-1, None), (2, -1)])
def test_a_size_that_cannot_be_is_refused(world, per_host, ranks):
    """Before anything starts."""
    with pytest.raises(UsageError, match="at least 1 rank"):
        ranks(world, ranks_per_host=per_host)


def test_fresh_means_new_processes(ranks):
    """Whatever ran before; without it they stay."""
    first = [seen["pid"] for seen in ranks(2).run(who_am_i).results]
    assert [seen["pid"] for seen in ranks(2).run(who_am_i).results] == first
    fresh = [seen["pid"] for seen in ranks(2, fresh=True).run(who_am_i).results]
    assert not set(fresh) & set(first)


def dies_a_moment_later(ctx):
    """After the report."""
    if ctx.rank == 1:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
        from parproof.ranks import hygiene

        hygiene.Hygiene.leftovers = lambda self: ()  # a C++ thread would not be seen either


def test_a_rank_that_dies_between_two_runs_is_replaced_and_told(ranks):
    """The run that finds it is not to blame: it works, and the loss is put into words for the session."""
    pool = ranks(2).pool
    pool.run(dies_a_moment_later)
    time.sleep(0.6)
    assert ranks(2).run(who_am_i).results[1]["sum"] == 1
    assert pool.take_losses() == [
        f"rank 1 of 2 was killed by SIGKILL after {__name__}:dies_a_moment_later had ended"
    ]


def started(monkeypatch, launcher, disturb):
    """A pool of two, with somebody else at the door while it starts."""
    from parproof.ranks.pool import RankPool

    listen = launcher.listen

    def watched(directory, backlog):
        listener, address = listen(directory, backlog)
        threading.Thread(target=disturb, args=(address,), daemon=True).start()
        time.sleep(0.3)
        return listener, address

    monkeypatch.setattr(launcher, "listen", watched)
    pool = RankPool(2, launcher)
    pool.start()
    return pool


def with_a_wrong_key(address):
    """Several times, before any rank is there."""
    for _ in range(4):
        with pytest.raises(Exception, match=r"digest|reset|closed|refused|^$"):
            Client(address, authkey=b"wrong")


def without_a_word(address):
    """Holds the line until the test is over."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as caller:
        caller.connect(address)
        time.sleep(30)


@pytest.mark.parametrize("disturb", [with_a_wrong_key, without_a_word])
def test_a_stranger_at_the_door_takes_no_place_and_holds_nobody_up(disturb, monkeypatch):
    """Ranks are told by their key and their slot."""
    from parproof.ranks.local import LocalLauncher

    before = time.monotonic()
    pool = started(monkeypatch, LocalLauncher(), disturb)
    try:
        assert pool.run(who_am_i).results[1]["sum"] == 1
        assert time.monotonic() - before < 20
    finally:
        pool.close()


def test_a_rank_server_started_by_a_plain_command_joins_over_tcp(monkeypatch):
    """All that another launcher has to do. The key travels on standard input, ranks meet at a store of the pool."""
    from parproof.ranks.command import CommandLauncher
    from parproof.ranks.pool import RankPool

    pool = RankPool(2, CommandLauncher("127.0.0.1"))
    try:
        run = pool.run(who_am_i)
        assert [seen["sum"] for seen in run.results] == [1, 1]
        assert run.observation["launcher"] == "command"
        with pytest.raises(RankFailure, match=r"^rank 1 of 2: was killed by SIGKILL"):
            pool.run(kills_rank_1)
        assert pool.num_starts == 1
    finally:
        pool.close()


SAYS_IT_IS = """
import socket, sys
socket.gethostname = lambda: sys.argv[1]
from parproof.ranks import server
server._machine = lambda: sys.argv[2]
server._command_line(sys.argv[3:])
"""


@pytest.mark.parametrize(
    ("names", "machines", "scope"),
    [
        (("a", "b"), ("1", "2"), "multi_host"),
        (("a", "b"), ("1", "1"), "emulated_hosts"),
        (("a", "a"), ("1", "1"), "single_host"),
    ],
    ids=["two_machines", "two_containers_of_one", "one_host"],
)
def test_the_scope_of_a_run_is_what_its_hosts_say_of_themselves(names, machines, scope):
    """Not what the launcher says: containers with names of their own are one machine."""
    from parproof.evidence.level import compute_scope
    from parproof.ranks.command import CommandLauncher
    from parproof.ranks.pool import RankPool

    pool = RankPool(
        2, CommandLauncher(command=lambda s: (sys.executable, "-c", SAYS_IT_IS, names[s], machines[s]))
    )
    try:
        run = pool.run(who_am_i)
    finally:
        pool.close()
    assert [rank["hostname"] for rank in run.observation["ranks"]] == list(names)
    assert compute_scope({"runs": [run.observation], "failed_runs": []}) == scope


def how_it_runs(ctx):
    """Scheduling of all its threads, and whether garbage is collected, but not what the fork server has loaded."""
    import gc

    threads = {os.sched_getscheduler(int(thread)) for thread in os.listdir("/proc/self/task")}
    return threads, gc.isenabled(), gc.get_freeze_count() > 100_000


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="needs Linux's SCHED_BATCH; found another system")
def test_ranks_leave_each_other_their_cores_and_collect_their_own_garbage_only(ranks):
    """The backend's threads too: those that gloo starts inherit it."""
    assert ranks(2, fresh=True).run(how_it_runs).results == [({os.SCHED_BATCH}, True, True)] * 2


def kills_rank_1(ctx):
    """And rank 0 waits for it."""
    import torch
    import torch.distributed as dist

    if ctx.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1))


def test_a_server_that_cannot_start_is_named():
    """With its exit code, and without waiting for the limit."""
    from parproof.ranks.command import CommandLauncher
    from parproof.ranks.pool import RankPool

    broken = CommandLauncher(command=lambda slot: (sys.executable, "-c", "raise SystemExit(7)"))
    with pytest.raises(RankFailure, match=r"rank \d of 2: exited with code 7 while it was starting"):
        RankPool(2, broken).start()
