"""What the two outputs of nccl-tests have in common: rows, and what has to hold between their numbers.

Bandwidths are in decimal gigabytes a second. `size` is that of the whole (docs/costs.md), so algorithm bandwidth is
size over time, and bus bandwidth is that times the factor of the operation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parproof.cost.collectives import GB, bus_factor
from parproof.evidence.exchange.assessment import Assessment

# Name of the program without `_perf` → operation of our cost model; None: another definition of its bandwidth.
OPERATIONS: dict[str, str | None] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "send",
    "hypercube": None,
}
_NUMBER = re.compile(r"[+-]?\d{1,20}(?:\.\d{1,12})?(?:[eE][+-]?\d{1,2})?")
# In place these cannot be checked, so N/A there is no neglect.
_NOT_CHECKED_IN_PLACE = ("alltoall",)


@dataclass(frozen=True)
class Printed:
    """A number as it was printed: the true one lies within half a unit of its last place."""

    value: float
    half_unit: float

    @classmethod
    def of(cls, text: str) -> Printed:
        """Errors: ValueError for what is no number of a table."""
        if not _NUMBER.fullmatch(text):
            raise ValueError(text[:40])
        mantissa, _, exponent = text.lower().partition("e")
        places = len(mantissa.partition(".")[2])
        return cls(float(text), 0.5 * 10.0 ** (int(exponent or 0) - places))

    @property
    def low(self) -> float:
        """The least it can have been."""
        return max(0.0, self.value - self.half_unit)

    @property
    def high(self) -> float:
        """The most it can have been."""
        return self.value + self.half_unit


@dataclass(frozen=True)
class Side:
    """One measurement of a row. wrong: number of wrong elements, None where nobody compared."""

    time_us: Printed
    algbw: Printed
    busbw: Printed
    wrong: float | None


@dataclass(frozen=True)
class Row:
    """One size, out of place and in place."""

    size_bytes: int
    dtype: str
    redop: str
    out_of_place: Side | None
    in_place: Side | None

    def sides(self) -> list[tuple[str, Side]]:
        """Those that were measured."""
        return [
            (name, side)
            for name, side in (("out_of_place", self.out_of_place), ("in_place", self.in_place))
            if side is not None
        ]


@dataclass
class Table:
    """One run. program: name without `_perf`; verdict: «OK», «FAILED» or None; average: GB/s over all rows and sides;
    of_slowest: the times are those of the slowest rank, as asked for with `-a 3`; wrong_settings: (name, text) of what
    was asked for and is no count."""

    rows: list[Row] = field(default_factory=list)
    program: str | None = None
    num_ranks: int | None = None
    hosts: tuple[str, ...] = ()
    devices: Mapping[str, str] = field(default_factory=dict)
    warmup: int | None = None
    iterations: int | None = None
    out_of_bounds: int | None = None
    verdict: str | None = None
    average: Printed | None = None
    cpu_time: bool = False
    ended: bool = False
    unreadable: list[str] = field(default_factory=list)
    wrong_settings: list[tuple[str, str]] = field(default_factory=list)
    of_slowest: bool = False
    per_iteration: bool = False


def assess(table: Table, told: Assessment) -> Assessment:
    """All checks, on whichever output the table was read from."""
    told.claims = {"verdict": table.verdict, "program": table.program}
    told.measured = bool(table.rows)
    told.accelerator = bool(table.devices)
    _give_groups(table, told)
    operation = OPERATIONS.get(table.program or "")
    if table.program is None or table.program not in OPERATIONS:
        told.limited("collective-not-named", "(top)", table.program)
    elif table.num_ranks is None:
        told.limited("group-size-unknown", "(top)")
    for row in table.rows:
        for name, side in row.sides():
            _check_side(told, table, row, name, side, operation)
    _check_values(told, table)
    _check_average(told, table)
    _check_run(told, table)
    for name, value in table.wrong_settings:
        reason = "not-positive" if value.startswith("-") else "not-finite"
        told.found(reason, f"settings.{name}", value, "a number, 0 or more")
    told.limited("synthetic-model", "(top)")
    if len(table.hosts) == 1:
        told.limited("one-host", "devices", table.hosts[0])
    elif not table.hosts:
        told.limited("hosts-not-told", "devices")
    if not table.of_slowest:
        told.limited("average-over-ranks", "time")
    if not table.per_iteration:
        told.limited("mean-only", "rows")
    told.close()
    return told


def _check_side(
    told: Assessment, table: Table, row: Row, name: str, side: Side, operation: str | None
) -> None:
    """Compared as intervals: every number is known to half a unit of what was printed."""
    where = f"{row.size_bytes} B {name}"
    told.values.append(
        {
            "collective": operation or table.program,
            "placement": name,
            "dtype": row.dtype,
            "size_bytes": row.size_bytes,
            "time_s": side.time_us.value / 1e6,
            "algorithm_GBps": side.algbw.value,
            "bus_GBps": side.busbw.value,
            "num_wrong": side.wrong,
        }
    )
    if min(side.time_us.value, side.algbw.value, side.busbw.value) < 0 or side.time_us.high <= 0:
        told.found("not-positive", where, side.time_us.value, "times and bandwidths above 0")
        return
    if side.wrong:
        told.found("wrong-values", where, f"{side.wrong:g} wrong", "0")
    if table.cpu_time or table.program == "hypercube":
        return  # the bandwidth is not that of this time, or of this size
    low = row.size_bytes / side.time_us.high / 1e-6 / GB
    high = row.size_bytes / max(side.time_us.low, 1e-12) / 1e-6 / GB
    if side.algbw.high < low or side.algbw.low > high:
        told.found("algbw", where, f"{side.algbw.value} GB/s", f"{low:.4g} to {high:.4g}: size over time")
    if table.num_ranks and (operation is not None or table.program is None):
        _check_bus(told, table.num_ranks, where, side, operation)


def _check_bus(told: Assessment, num_ranks: int, where: str, side: Side, operation: str | None) -> None:
    """The factor of the operation; where that is not told, the factor of any."""
    known = [operation] if operation else [name for name in OPERATIONS.values() if name]
    factors = {float(bus_factor(name, num_ranks)) for name in known}
    if any(
        factor * side.algbw.low <= side.busbw.high and side.busbw.low <= factor * side.algbw.high
        for factor in factors
    ):
        return
    wanted = " or ".join(f"{factor:.4g}" for factor in sorted(factors))
    supported = (
        f"{wanted} times algbw of {side.algbw.value} for {operation or 'any operation'} of {num_ranks} ranks"
    )
    told.found("busbw", where, f"{side.busbw.value} GB/s", supported)


def _check_values(told: Assessment, table: Table) -> None:
    """The verdict follows from the rows, and what nobody compared is not OK."""
    sides = [(name, side) for row in table.rows for name, side in row.sides()]
    needed = [s for n, s in sides if n == "out_of_place" or table.program not in _NOT_CHECKED_IN_PLACE]
    unchecked = [side for side in needed if side.wrong is None]
    wrong = any(side.wrong for _, side in sides)
    if unchecked:
        told.limited("values-unchecked", "#wrong", f"{len(unchecked)} of {len(needed)} N/A")
        if table.verdict == "OK" and len(unchecked) == len(needed):
            told.found("unchecked-called-ok", "out of bounds values", "OK", "not compared: N/A in every row")
        told.give("conclusion", correctness="not_evaluated")
    else:
        told.give("conclusion", correctness="fail" if wrong else "pass" if sides else None)
    if table.out_of_bounds is None:
        return
    if bool(table.out_of_bounds) != wrong and not unchecked:
        told.found(
            "out-of-bounds",
            "out of bounds values",
            table.out_of_bounds,
            "some" if wrong else "none in the rows",
        )
    if table.verdict is not None and (table.verdict == "OK") != (table.out_of_bounds == 0):
        told.found(
            "out-of-bounds", "out of bounds values", f"{table.out_of_bounds} {table.verdict}", "OK for 0 only"
        )


def _check_average(told: Assessment, table: Table) -> None:
    """The mean over all rows and both sides, as far as rounding lets it be told."""
    found = [side.busbw for row in table.rows for _, side in row.sides()]
    if table.average is None or not found:
        return
    low, high = (sum(values) / len(found) for values in ([b.low for b in found], [b.high for b in found]))
    # Six significant digits are printed.
    slack = 1e-5 * abs(table.average.value) + table.average.half_unit
    if not low - slack <= table.average.value <= high + slack:
        told.found(
            "avg-busbw",
            "avg bus bandwidth",
            table.average.value,
            f"{low:.5g} to {high:.5g}: mean of the rows",
        )


def _check_run(told: Assessment, table: Table) -> None:
    """Whole, warmed up, repeated, and timed where the work is done."""
    for line in table.unreadable[:3]:
        told.found("row-unreadable", "rows", line, "size, count, type, and numbers under every heading")
    if not table.ended:
        told.found("table-cut-short", "(end)", "a table", "its end: out of bounds values and average")
    if table.cpu_time:
        told.found("cpu-time", "cputime", "times", "the time to launch, not to communicate")
    if table.warmup is None or table.warmup < 1:
        told.limited("no-warm-up", "warmup iters", table.warmup)
    if table.iterations is None or table.iterations < 2:
        told.limited("no-repeats", "iters", table.iterations)
    if table.num_ranks is not None and table.num_ranks < 2:
        told.found("single-process", "ranks", table.num_ranks, "two or more ranks for any communication")


def _give_groups(table: Table, told: Assessment) -> None:
    operation = OPERATIONS.get(table.program or "")
    told.give("identity", semantic_id="PAR-NCCL-COLLECTIVE", strategy=None)
    told.give("hardware", accelerator=sorted(set(table.devices.values())) or None, world_size=table.num_ranks)
    told.give("hardware", rank_to_device=dict(table.devices) or None)
    told.give(
        "hardware", scope=None if not table.hosts else "multi_host" if len(table.hosts) > 1 else "single_host"
    )
    told.give("communication", backend="nccl", collective=operation, call_count=table.iterations)
    told.give("communication", payload_bytes=[row.size_bytes for row in table.rows] or None)


def count_of(value: Any) -> int | None:
    """A whole number that is not negative, or None."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if value >= 0 else None
