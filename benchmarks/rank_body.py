"""The same rank body for every harness: one all_reduce and a check of its value."""

from __future__ import annotations

import os
import signal
import time
from typing import Any


def all_reduce_and_check(rank: int, world_size: int) -> None:
    """What a small distributed test does."""
    import torch
    import torch.distributed as dist

    x = torch.full((16,), float(rank))
    dist.all_reduce(x)
    assert x[0].item() == world_size * (world_size - 1) / 2


def program(ctx: Any) -> float:
    """As a rank program of the pool; returns the seconds of the body alone."""
    started = time.perf_counter()
    all_reduce_and_check(ctx.rank, ctx.world_size)
    return time.perf_counter() - started


def dies(ctx: Any) -> None:
    """The last rank is killed, the others wait for it."""
    if ctx.rank == ctx.world_size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    all_reduce_and_check(ctx.rank, ctx.world_size)


def hangs(ctx: Any) -> None:
    """No rank comes back."""
    time.sleep(60)
