"""Groups that a program makes: closed when all ranks are done with them, and no reason for a new default group."""

import pytest

pytestmark = pytest.mark.selfcheck


def looks_for_a_peer_that_has_returned(ctx):
    """Rank 0 makes the group and returns. Rank 1 is slow, and then tries to hear from it."""
    import datetime
    import time

    import torch
    import torch.distributed as dist

    group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=0.3))
    if ctx.rank == 0:
        return ""
    time.sleep(0.3)
    try:
        dist.recv(torch.zeros(1), group=group, group_src=0)
    except RuntimeError as error:
        return str(error)


def test_a_rank_keeps_its_groups_until_all_have_reported(ranks):
    """A slow peer may still be joining them: it would wait for ever for one that has hung up."""
    text = ranks(2, allow_mismatch=True).run(looks_for_a_peer_that_has_returned).results[1]
    assert "Timed out" in text
    assert "closed" not in text.lower()


def messages_in_one_direction(ctx):
    """Rank 1 makes twice as many calls as the others."""
    import torch
    import torch.distributed as dist

    x = torch.ones(1)
    for peer in (0, 2):
        if ctx.rank == 1:
            dist.send(x, peer)
        elif ctx.rank == peer:
            dist.recv(x, 1)


def test_ranks_may_differ_in_the_number_of_their_messages(ranks):
    """As the middle of a pipeline does: the group is clean all the same."""
    ranks(3).run(messages_in_one_direction)
    before = ranks(3).pool.num_inits
    ranks(3).run(messages_in_one_direction)
    assert ranks(3).pool.num_inits == before
