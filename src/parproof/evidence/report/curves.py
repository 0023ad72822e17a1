"""Time and bus bandwidth over payload, computed again from the samples: interval, fit, or why there is no fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from parproof.cost.collectives import bus_GBps
from parproof.cost.fit import AlphaBeta, fit_alpha_beta
from parproof.cost.statistics import Summary, summarise
from parproof.errors import ParproofError

EXPERIMENT, CLAIM = "PAR-NCCL-COLLECTIVE", "C8"
MAX_CHARTS, MAX_SERIES, MAX_POINTS = 12, 4, 64


@dataclass(frozen=True)
class Point:
    """One payload."""

    size: int
    time: Summary
    bus_GBps: float  # noqa: N815


@dataclass
class Series:
    """One record: one subject's times of one operation. `refused`: why no model is reported."""

    sequence: int
    subject: str
    lane: str
    level: str
    num_ranks: int
    backend: str
    warmup: int
    points: list[Point]
    model: AlphaBeta | None
    refused: str


@dataclass
class Curve:
    """All series of one operation."""

    op: str
    series: list[Series] = field(default_factory=list)


class Curves:
    """Collects the timing records of the collective experiment."""

    def __init__(self) -> None:
        self._found: dict[str, Curve] = {}
        self.num_left_out = 0

    def add(self, record: dict[str, Any]) -> None:
        """Timings are read only where the record is ok: correctness comes first."""
        identity = record["identity"]
        if identity["semantic_id"] != EXPERIMENT or CLAIM not in identity["claims"]:
            return
        op = identity["workload"].get("op")
        if record["conclusion"]["status"] != "ok" or not isinstance(op, str):
            return
        known = self._found.get(op)
        # The interval of each payload is a thousand medians: not for what would not be drawn.
        if len(self._found) == MAX_CHARTS if known is None else len(known.series) == MAX_SERIES:
            self.num_left_out += 1
            return
        series = _series(record, op.removesuffix("_single"))
        if series is not None:
            self._found.setdefault(op, Curve(op)).series.append(series)

    def charts(self) -> list[Curve]:
        """In the order of the records."""
        return list(self._found.values())


def _series(record: dict[str, Any], op: str) -> Series | None:
    payloads, timed = record["measurements"].get("payloads"), record["time"]["measured"]
    world = record["topology"]["world_size"]
    if not (isinstance(payloads, list) and timed and len(payloads) == len(timed) <= MAX_POINTS and world):
        return None
    sizes: list[Any] = [row.get("size_bytes") if isinstance(row, dict) else None for row in payloads]
    if not all(type(size) is int and 0 < size < 2**50 for size in sizes):
        return None
    try:
        points = [
            _point(op, world, size, entry["samples_s"]) for size, entry in zip(sizes, timed, strict=True)
        ]
    except (ParproofError, ValueError):
        return None
    points.sort(key=lambda point: point.size)
    model, refused = _fitted(op, world, points)
    subject = record["identity"]["subject"] or {"name": ""}
    return Series(
        record["sequence"],
        subject["name"],
        record["identity"]["lane"] or "",
        record["conclusion"]["evidence_level"] or "none",
        world,
        record["communication"]["backend"] or "",
        min(entry["warmup"] for entry in timed),
        points,
        model,
        refused,
    )


def _point(op: str, world: int, size: int, samples_s: list[list[float]]) -> Point:
    time = summarise(samples_s)
    return Point(size, time, bus_GBps(op, world, size, time.median_s))


def _fitted(op: str, world: int, points: list[Point]) -> tuple[AlphaBeta | None, str]:
    try:
        return fit_alpha_beta(op, world, [(point.size, point.time.median_s) for point in points]), ""
    except ParproofError as refused:
        return None, f"{refused.observed}; {refused.expected}" if refused.expected else refused.observed
