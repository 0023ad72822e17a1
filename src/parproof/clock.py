"""Timing inside ranks: warm-up, a barrier before every call, raw samples of every rank. Statistics: cost.statistics.

A rank program returns its samples; the per-call maximum over ranks is taken where all of them are known, so that
no rank has to communicate to be timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parproof.ranks.context import RankContext


def timed(
    ctx: RankContext, call: Callable[[], object], *, warmup: int = 5, repeats: int = 20, inner: int = 1
) -> list[float]:
    """Seconds per call, one sample for each repeat, on this rank's own monotonic clock.

    call    synchronous: what it starts must be complete when it returns (wait for asynchronous calls)
    inner   calls for one sample, back to back; a short call drowns in the clock and the barrier's tail else
    Every sample starts behind a barrier, since a rank that arrives late would be timed by the others.
    """
    if repeats < 1 or warmup < 0 or inner < 1:
        raise ValueError(f"warmup {warmup}, repeats {repeats}, inner {inner}: expected ≥ 0, ≥ 1, ≥ 1")
    for _ in range(warmup):
        call()
    samples = []
    for _ in range(repeats):
        _line_up(ctx)
        started = time.perf_counter()
        for _ in range(inner):
            call()
        _finish(ctx)
        samples.append((time.perf_counter() - started) / inner)
    return samples


def _line_up(ctx: RankContext) -> None:
    import torch.distributed as dist

    _finish(ctx)
    dist.barrier(group=ctx.group)
    _finish(ctx)


def _finish(ctx: RankContext) -> None:
    """A GPU's work is done only when the device says so."""
    if ctx.device.type == "cuda":
        import torch

        torch.cuda.synchronize(ctx.device)
