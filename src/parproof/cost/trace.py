"""Reads a torch.profiler Chrome trace into intervals, so that a kept trace can be opened again. No torch here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parproof.errors import UsageError

_COMMUNICATION = ("gloo:", "nccl:", "nccl_", "ncclDevKernel", "ncclKernel")


@dataclass(frozen=True)
class TraceIntervals:
    """Intervals in ms since the first event; communication as (op, start, end), compute as (start, end).

    compute   events named `compute_name`, which the traced program marks with record_function
    """

    rank: int
    world_size: int
    communication: tuple[tuple[str, float, float], ...]
    compute: tuple[tuple[float, float], ...]


def read_trace(path: Path, compute_name: str) -> TraceIntervals:
    """Errors: UsageError for what is no such trace, or was cut off."""
    try:
        raw = json.loads(path.read_bytes())
        events = [event for event in raw["traceEvents"] if event.get("ph") == "X"]
        about = raw["distributedInfo"]
        rank, world_size = int(about["rank"]), int(about["world_size"])
        origin = min(float(event["ts"]) for event in events)
        found = [_interval(event, origin) for event in events]
    except (OSError, ValueError, KeyError, TypeError) as wrong:
        raise UsageError(
            f"{type(wrong).__name__}: {wrong}",
            expected="a Chrome trace of torch.profiler from a process with a process group",
            where=str(path.name),
            next_step="export it again with profile.export_chrome_trace",
        ) from wrong
    communication = [(_op(name), start, end) for name, start, end in found if name.startswith(_COMMUNICATION)]
    compute = [(start, end) for name, start, end in found if name == compute_name]
    return TraceIntervals(
        rank, world_size, tuple(sorted(communication, key=lambda c: c[1])), tuple(sorted(compute))
    )


def _interval(event: dict[str, Any], origin: float) -> tuple[str, float, float]:
    start = (float(event["ts"]) - origin) / 1e3
    return str(event["name"]), start, start + float(event["dur"]) / 1e3


def _op(name: str) -> str:
    """«gloo:all_reduce» → «all_reduce»."""
    return name.partition(":")[2] or name
