"""Rank programs of PAR-OVERLAP-HOTSPOT."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from parproof import torch_version
from parproof.errors import Unsupported
from parproof.ledger.wire import tcp_sent_bytes
from parproof.ranks.context import RankContext
from parproof.subjects.overlap_protocol import Overlap
from parproof.subjects.protocol import SubjectRef

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

COMPUTE = "parproof.compute"
# Long against the start of a thread; a right subject passes whatever it is, since it waits for the others.
SERIAL_HEAD_START_S = 0.02
# Far more than the conversion of a cycle counter to Unix time errs, over the milliseconds of a traced run.
GAP_S = 3e-4
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


def traced(ctx: RankContext, subject: SubjectRef, overlapped: bool, steps: int) -> dict[str, Any]:
    """A few steps of two ranks under torch.profiler: the exported trace, and witnesses of what is in it.

    events      (name, start, end) that the profiler holds in memory, in ns from its own origin
    moments     of each step, Unix time in ns
    Each step: a broadcast inside marked work, which covers it whole, then the exchange in a known order.
    """
    overlap = subject.make("overlap")
    # A key that an earlier run has set would let rank 1 in too early.
    token = torch.tensor([time.time_ns() if ctx.rank == 0 else 0])
    dist.broadcast(token, src=0)
    overlap.exchange_and_compute(bucket_of(ctx.rank), lambda: token, ctx.group, overlapped=overlapped)
    moments = []
    with (
        ctx.phase("traced"),
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile,
    ):
        for step in range(steps):
            with torch.profiler.record_function(COMPUTE):
                dist.broadcast(token, src=0)
            moments.append(_in_known_order(ctx, overlap, overlapped, f"{int(token)}-{step}"))
        if torch_version.before("2.12"):  # later ones say themselves where they ran
            profile.add_metadata_json("host_name", json.dumps(socket.gethostname()))
    with TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        profile.export_chrome_trace(str(path))
        trace = path.read_bytes()
    events = [
        (event.name, round(event.time_range.start * 1e3), round(event.time_range.end * 1e3))
        for event in profile.events() or ()
        if event.name == COMPUTE or event.name.startswith(("gloo:", "nccl:"))
    ]
    return {"trace": trace, "events": events, "moments": moments}


def _in_known_order(ctx: RankContext, overlap: Overlap, overlapped: bool, key: str) -> dict[str, int]:
    """One exchange of two ranks; returns the moments between which its intervals have to start and end.

    Rank 1 enters the sum once bytes have left rank 0, so rank 0's sum has started by then. Overlapped, it waits for
    rank 0's work too, so that rank 0's sum cannot end before. Rank 0's work begins after its sum has started.
    """
    store = dist.distributed_c10d._get_default_store()
    said: dict[str, int] = {}
    watcher = Thread(target=_watch, args=(_sent(), said, store, f"{key}-under-way"), daemon=True)

    def work() -> torch.Tensor:
        if ctx.rank == 0:
            watcher.join()
        said["before_work"] = _moment()
        with torch.profiler.record_function(COMPUTE):
            said["work_begun"] = _moment()
            made = some_work(ctx.rank)
            said["work_ending"] = _moment()
        said["after_work"] = _moment()
        if ctx.rank == 0:
            store.set(f"{key}-worked", "yes")
        return made

    if ctx.rank == 0:
        watcher.start()
    else:
        store.wait([f"{key}-under-way", *([f"{key}-worked"] if overlapped else [])])
        time.sleep(0 if overlapped else SERIAL_HEAD_START_S / 4)
    said["issued"] = _moment()
    overlap.exchange_and_compute(bucket_of(ctx.rank), work, ctx.group, overlapped=overlapped)
    said["returned"] = _moment()
    return said


def _watch(before: int, said: dict[str, int], store: Store, key: str) -> None:
    """Say when bytes have left this rank: what it takes part in has started."""
    while _sent() == before:
        time.sleep(GAP_S)
    said["under_way"] = _moment()
    store.set(key, "yes")


def _sent() -> int:
    found = tcp_sent_bytes()
    if isinstance(found, str):
        raise Unsupported(found)
    return sum(found.values())


def _moment() -> int:
    """Now, with nothing happening just before or after: the profiler counts cycles and converts them to time."""
    time.sleep(GAP_S)
    now = time.time_ns()
    time.sleep(GAP_S)
    return now
