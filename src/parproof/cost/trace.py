"""Reads torch.profiler Chrome traces into intervals, so that kept traces can be opened again. No torch here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from parproof.errors import UsageError

_COMMUNICATION = ("gloo:", "nccl:", "nccl_", "ncclDevKernel", "ncclKernel")


@dataclass(frozen=True)
class TraceIntervals:
    """One rank's intervals, in order of their starts, in ns of Unix time on the clock of its host.

    communication   (op, start, end)
    compute         (start, end) of events named `compute_name`, which the traced program marks with record_function
    """

    rank: int
    world_size: int
    host: str
    communication: tuple[tuple[str, int, int], ...]
    compute: tuple[tuple[int, int], ...]


def read_trace(path: Path, compute_name: str) -> TraceIntervals:
    """Errors: UsageError for what is no such trace, or was cut off."""
    try:
        # A double holds Unix time in microseconds to a quarter of one only.
        raw = json.loads(path.read_bytes(), parse_float=Decimal)
        events = [event for event in raw["traceEvents"] if event.get("ph") == "X"]
        about = raw["distributedInfo"]
        rank, world_size = int(about["rank"]), int(about["world_size"])
        base_ns, host = int(raw["baseTimeNanoseconds"]), raw["host_name"]
        if not events or not isinstance(host, str):
            raise ValueError(f"{len(events)} events with a length, of host {host}")
        found = sorted((_interval(event, base_ns) for event in events), key=lambda event: event[1:])
    except (OSError, ValueError, ArithmeticError, KeyError, TypeError) as wrong:
        raise UsageError(
            f"{type(wrong).__name__}: {wrong}",
            expected="a Chrome trace of torch.profiler from a process with a process group",
            where=str(path.name),
            next_step="export it again with profile.export_chrome_trace; torch 2.11 does not say where it ran:"
            " profile.add_metadata_json('host_name', json.dumps(socket.gethostname()))",
        ) from wrong
    communication = [(_op(name), start, end) for name, start, end in found if name.startswith(_COMMUNICATION)]
    compute = [(start, end) for name, start, end in found if name == compute_name]
    return TraceIntervals(rank, world_size, host, tuple(communication), tuple(compute))


def common_origin_ns(traces: Sequence[TraceIntervals]) -> int:
    """The first start over all ranks, from which every rank's times are to be told: an origin of each rank's own would
    hide who waited for whom.

    Errors   UsageError unless there is one trace of each rank, all of one host: hosts do not share a clock
    """
    ranks, hosts = sorted(trace.rank for trace in traces), sorted({trace.host for trace in traces})
    starts = [
        start
        for trace in traces
        for start in (*(c[1] for c in trace.communication), *(c[0] for c in trace.compute))
    ]
    whole = bool(traces) and all(ranks == list(range(trace.world_size)) for trace in traces)
    if not whole or len(hosts) > 1 or not starts:
        raise UsageError(
            f"traces of ranks {ranks} on hosts {hosts}, with {len(starts)} intervals",
            expected="one trace of each rank of a run, all from one host, so that they share a clock",
            where="common_origin_ns",
        )
    return min(starts)


def _interval(event: dict[str, Any], base_ns: int) -> tuple[str, int, int]:
    start_ns = base_ns + round(event["ts"] * 1000)
    return str(event["name"]), start_ns, start_ns + round(event["dur"] * 1000)


def _op(name: str) -> str:
    """«gloo:all_reduce» → «all_reduce»."""
    return name.partition(":")[2] or name
