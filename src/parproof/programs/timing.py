"""Rank programs with known delays, to test the clock."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from parproof.clock import timed
from parproof.ranks.context import RankContext


def late_before_each_call(ctx: RankContext, delay_s: float, repeats: int) -> list[float]:
    """Rank 1 comes late to every all_reduce, outside of what is timed."""
    buffer = torch.ones(4)
    samples = []
    for _ in range(repeats):
        if ctx.rank == 1:
            time.sleep(delay_s)
        samples += timed(ctx, lambda: dist.all_reduce(buffer), warmup=0, repeats=1)
    return samples


def slow_in_each_call(ctx: RankContext, delay_s: float, repeats: int) -> list[float]:
    """Rank 1 works longer in what is timed; nobody waits for it inside."""

    def call() -> None:
        if ctx.rank == 1:
            time.sleep(delay_s)

    return timed(ctx, call, warmup=1, repeats=repeats)
