"""Communication that no dispatch mode sees: the groups' own counts must give it away."""

from __future__ import annotations

import _thread
import time

import torch
import torch.distributed as dist

from parproof.ranks.context import RankContext


def honest(ctx: RankContext) -> None:
    """One all_reduce over all, one over ranks 0 and 1."""
    group = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(4))
    if ctx.rank < 2:
        dist.all_reduce(torch.ones(4), group=group)


def past_the_dispatcher(ctx: RankContext) -> None:
    """Two of three calls in the subgroup go to the backend object itself."""
    group = dist.new_group([0, 1])
    if ctx.rank < 2:
        dist.all_reduce(torch.ones(4), group=group)
        backend = group._get_backend(torch.device("cpu"))
        for _ in range(2):
            backend.allreduce([torch.ones(4)]).wait()


def raw_thread(ctx: RankContext) -> None:
    """A thread that `threading` does not know of."""
    done: list[int] = []

    def work() -> None:
        dist.all_reduce(torch.ones(4))
        done.append(1)

    _thread.start_new_thread(work, ())
    while not done:
        time.sleep(0.001)


def operator_of_tomorrow(ctx: RankContext) -> None:
    """An operator of torch's communication namespace that the ledger's table does not know."""
    library = torch.library.Library("c10d", "FRAGMENT")
    library.define("whisper(Tensor message) -> Tensor")
    library.impl("whisper", torch.clone, "CPU")
    torch.ops.c10d.whisper(torch.ones(4))
    library._destroy()
