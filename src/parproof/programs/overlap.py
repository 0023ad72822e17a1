"""Rank programs of PAR-OVERLAP-HOTSPOT."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from parproof.ranks.context import RankContext
from parproof.subjects.protocol import SubjectRef

COMPUTE = "parproof.compute"
# Long against the start of a thread; a right subject passes whatever it is, since it waits for the others.
SERIAL_HEAD_START_S = 0.02
BUCKET_ELEMENTS = 1 << 12


def bucket_of(rank: int) -> torch.Tensor:
    """Integers that encode the rank; sums over ranks are exact."""
    return torch.arange(BUCKET_ELEMENTS, dtype=torch.float64) + 1000.0 * rank


def some_work(rank: int) -> torch.Tensor:
    """Integer matrix products; exact."""
    state = torch.arange(64, dtype=torch.int64).reshape(8, 8) + rank
    for _ in range(20):
        state = (state @ state) % 9973
    return state


def choreographed(ctx: RankContext, subject: SubjectRef, overlapped: bool) -> dict[str, Any]:
    """One exchange beside work, in a known order.

    Overlapped: the other ranks enter the sum only after rank 0 has finished its work, so rank 0's communication
    cannot be over before its work is. Serial: the others enter late, so rank 0 must not have begun its work by then.
    Events are taken from one clock; the call is seen by the ledger, not told by the subject.
    """
    overlap = subject.make("overlap")
    rows = ctx.recorder.rows if ctx.recorder else []
    key, store = f"worked-{overlapped}-{subject.address}", dist.distributed_c10d._get_default_store()
    marks: dict[str, float] = {}
    calls_before_work = before = -1

    def work() -> torch.Tensor:
        nonlocal calls_before_work
        calls_before_work = len(rows) - before
        marks["work_start"] = time.monotonic()
        made = some_work(ctx.rank)
        marks["work_end"] = time.monotonic()
        if ctx.rank == 0:
            store.set(key, "yes")
        return made

    dist.barrier()
    before = len(rows)
    if ctx.rank != 0:
        if overlapped:
            store.wait([key])
        else:
            time.sleep(SERIAL_HEAD_START_S)
    marks["issued"] = time.monotonic()
    total, computed = overlap.exchange_and_compute(
        bucket_of(ctx.rank), work, ctx.group, overlapped=overlapped
    )
    total = total.clone()
    marks["returned"] = time.monotonic()
    return {"total": total, "computed": computed, "marks": marks, "calls_before_work": calls_before_work}


def traced(
    ctx: RankContext, subject: SubjectRef, overlapped: bool, directory: str, steps: int
) -> dict[str, Any]:
    """A few steps under torch.profiler; the trace is exported as a file of this rank."""
    overlap = subject.make("overlap")

    def work() -> torch.Tensor:
        with torch.profiler.record_function(COMPUTE):
            return some_work(ctx.rank)

    overlap.exchange_and_compute(bucket_of(ctx.rank), work, ctx.group, overlapped=overlapped)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(steps):
            overlap.exchange_and_compute(bucket_of(ctx.rank), work, ctx.group, overlapped=overlapped)
    path = Path(directory) / f"rank{ctx.rank}.trace.json"
    profile.export_chrome_trace(str(path))
    events = [
        (event.name, event.time_range.elapsed_us() / 1e3)
        for event in profile.events() or ()
        if event.name == COMPUTE or event.name.startswith(("gloo:", "nccl:"))
    ]
    return {"trace": str(path), "events": events}
