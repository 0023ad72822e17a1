"""A default group is used again only when it is clean: no message, no call and no setting reaches the next run."""

import pytest

pytestmark = pytest.mark.selfcheck


def balanced(ctx):
    """A program after which the group is as it was."""
    import torch
    import torch.distributed as dist

    x = torch.full((2,), float(ctx.rank + 1))
    dist.all_reduce(x)
    return x.tolist()


def receive_from_0(ctx):
    """One message from 0 to 1."""
    import torch
    import torch.distributed as dist

    x = torch.full((1,), 1.0)
    if ctx.rank == 0:
        dist.send(x, 1)
    elif ctx.rank == 1:
        x = torch.zeros(1)
        dist.recv(x, 0)
    return x.item()


def leaves_a_message(ctx):
    """Nobody receives it in this run."""
    import torch
    import torch.distributed as dist

    if ctx.rank == 0:
        ctx.facts["kept"] = bool(dist.isend(torch.full((1,), 7.0), 1))


def leaves_an_all_reduce(ctx):
    """Rank 1 does not join it in this run."""
    import torch
    import torch.distributed as dist

    if ctx.rank == 0:
        dist.all_reduce(torch.full((2,), 100.0), async_op=True)


def leaves_subgroups(ctx):
    """Two groups more."""
    import torch.distributed as dist

    dist.new_group([0])
    dist.new_group([0, 1])


def leaves_a_mesh(ctx):
    """With the groups of its axes."""
    from torch.distributed.device_mesh import init_device_mesh

    init_device_mesh("cpu", (2, 1), mesh_dim_names=("data", "model"))


def sums_in_a_group_of_its_own(ctx):
    """A new group of both, under a name that the members give it: always the same one."""
    import torch
    import torch.distributed as dist

    group = dist.new_group([0, 1], use_local_synchronization=True)
    x = torch.full((2,), float(ctx.rank + 1))
    dist.all_reduce(x, group=group)
    return [group.group_name, dist.new_group([0, 1]).group_name, x.tolist()]


def leaves_a_message_in_a_subgroup(ctx):
    """Nobody receives it in this run."""
    import torch
    import torch.distributed as dist

    group = dist.new_group([0, 1])
    if ctx.rank == 0:
        ctx.facts["kept"] = bool(dist.isend(torch.full((1,), 7.0), 1, group=group))


def leaves_a_functional_call(ctx):
    """torch keeps it for the rest of the process."""
    import torch
    from torch.distributed import _functional_collectives as functional

    ctx.facts["kept"] = bool(functional.all_reduce(torch.ones(2), "sum", ctx.group).shape)


KEPT = []


def leaves_ddp_alive(ctx):
    """The model outlives the run."""
    import torch

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()
    KEPT.append(model)


def leaves_fsdp_alive(ctx):
    """The model outlives the run."""
    import torch
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()
    KEPT.append(model)


def destroys_the_group(ctx):
    """The one that the pool made."""
    import torch.distributed as dist

    dist.destroy_process_group()


def asks_for_detail(ctx):
    """For every group made from now on."""
    from torch._C._distributed_c10d import DebugLevel, set_debug_level

    set_debug_level(DebugLevel.DETAIL)


def shortens_the_timeout(ctx):
    """Hardly at all: the next call would time out."""
    import datetime

    from torch.distributed.distributed_c10d import _set_pg_timeout

    _set_pg_timeout(datetime.timedelta(milliseconds=1), ctx.group)


UNCLEAN = [
    leaves_a_message,
    leaves_an_all_reduce,
    leaves_a_message_in_a_subgroup,
    leaves_a_functional_call,
    destroys_the_group,
]
CLEAN = [
    balanced,
    receive_from_0,
    leaves_subgroups,
    leaves_a_mesh,
    sums_in_a_group_of_its_own,
    leaves_ddp_alive,
    asks_for_detail,
    shortens_the_timeout,
]


def named(program):
    """A test id."""
    return program.__name__


@pytest.mark.parametrize("program", [*UNCLEAN, *CLEAN, leaves_fsdp_alive], ids=named)
def test_nothing_of_a_run_reaches_the_next(program, ranks):
    """Without the rule, the stale 7.0 is received, and 3.0 becomes 102.0."""
    ranks(2, allow_mismatch=True).run(program)
    assert ranks(2).run(receive_from_0).results == [1.0, 1.0]
    ranks(2, allow_mismatch=True).run(program)
    assert ranks(2).run(balanced).results == [[3.0, 3.0]] * 2


@pytest.mark.parametrize("program", UNCLEAN, ids=named)
def test_a_group_that_is_not_clean_is_made_anew(program, ranks):
    """Counted by the pool; the processes stay."""
    ranks(2).run(balanced)
    pool = ranks(2).pool
    before = pool.num_inits, pool.num_starts
    ranks(2, allow_mismatch=True).run(program)
    ranks(2).run(balanced)
    assert (pool.num_inits, pool.num_starts) == (before[0] + 1, before[1])


@pytest.mark.parametrize("program", CLEAN, ids=named)
def test_a_clean_group_is_used_again(program, ranks):
    """Making one costs 30 ms a pair, using it again costs nothing."""
    ranks(2).run(balanced)
    pool = ranks(2).pool
    before = pool.num_inits, pool.num_starts
    ranks(2).run(program)
    ranks(2).run(balanced)
    assert (pool.num_inits, pool.num_starts) == before


def test_groups_of_every_run_have_the_same_names_and_meet_their_own(ranks):
    """DTensor keeps names of groups from run to run; an address left in the store would lead to a closed socket."""
    first = ranks(2).run(sums_in_a_group_of_its_own).results
    for _ in range(3):
        assert ranks(2).run(sums_in_a_group_of_its_own).results == first
    assert first[0] == first[1]
    assert first[0][2] == [3.0, 3.0]


def test_a_call_that_is_never_waited_for_counts_once(ranks):
    """Later runs are not taken for unclean by it."""
    ranks(2, allow_mismatch=True).run(leaves_a_functional_call)
    ranks(2).run(balanced)
    before = ranks(2).pool.num_inits
    for _ in range(2):
        ranks(2).run(balanced)
    assert ranks(2).pool.num_inits == before


def test_a_run_without_ledger_does_not_vouch_for_its_group(ranks):
    """Nobody saw what it sent."""
    ranks(2).run(balanced)
    before = ranks(2).pool.num_inits
    ranks(2, ledger=False).run(balanced)
    ranks(2).run(balanced)
    assert ranks(2).pool.num_inits == before + 1
