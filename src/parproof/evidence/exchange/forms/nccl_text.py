"""The table that nccl-tests prints: old columns (`error`) and new (`#wrong`), with or without prefixes of a launcher."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice

from parproof.evidence.exchange.assessment import Assessment
from parproof.evidence.exchange.forms import nccl
from parproof.evidence.exchange.forms.nccl import Printed, Row, Side, Table

FORMAT = "nccl-tests text"
MAX_LINES, MAX_ROWS, MAX_TABLES = 1_000_000, 10_000, 100
MAX_LINE_LENGTH = 1000  # a row has some 150; patterns are searched for in each line
_PREFIX = re.compile(r"^\s*(?:\[[^\]]{1,80}\](?:<std\w+>)?:?\s*|\d{1,6}:\s+|[\w.-]{1,80}:\s+)")
_RANK = re.compile(
    r"^#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+(\d+)\s+\[[^\]]*\]\s+(.+)$"
)
_HEADER = re.compile(r"^#\s+size\s+count\s+type\b.*\b(?:time|cputime)\b.*\balgbw\b.*\bbusbw\b")
_PROGRAM = re.compile(r"Collective test (?:starting|concluded): (\w+?)(?:_perf)?\s*$")
_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d{1,18})\s*(OK|FAILED)?")
_AVERAGE = re.compile(r"^#\s*Avg bus bandwidth\s*:\s*(\S{1,30})")
_SETTING = re.compile(r"(warmup iters|agg iters|iters): (\d{1,9})")
_BEGINS = re.compile(r"Collective test starting|nThread \d|nccl-tests version|^#\s+size\s+count\s")
# What a run was asked for, in its first line: «step: 16(factor)».
_ASKED = re.compile(r"\b(nThread|nGpus|minBytes|maxBytes|step:|(?:warmup |agg )?iters:) *(\S{1,40})")
# A question mark says nothing, as null does.
_ASKED_VALUE = re.compile(r"\d+(?:\((?:factor|bytes)\))?|\?")
_LIKE_A_ROW = re.compile(r"\d+\s+(?:\d+\s+[a-z]|\S+\s+[a-z].*\d\.\d+\s+\d+\.\d)")
_NUMBERED = re.compile(r"^\d{1,6}:\s")
_SIZE = re.compile(r"\d{1,18}")
_DATE = re.compile(r"^\d{4}-\d\d-\d\d$")
_NOTHING = ("N/A", "n/a", "-1")


@dataclass
class _Reading:
    """One table while it is read."""

    table: Table = field(default_factory=Table)
    header: str = ""
    devices: dict[str, str] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)


def recognise(text: str) -> list[Assessment]:
    """Every table of the text; none when there is no header of one."""
    readings = [_Reading()]
    for line in islice(text.splitlines(), MAX_LINES):
        line = _without_prefix(line[:MAX_LINE_LENGTH].strip())
        if line.startswith("#"):
            if readings[-1].table.ended and _BEGINS.search(line) and len(readings) < MAX_TABLES:
                readings.append(_Reading())
            _comment(line, readings[-1])
        elif readings[-1].header and line[:1].isdigit() and len(readings[-1].table.rows) < MAX_ROWS:
            row = _row(line.split(), readings[-1].header)
            if row is not None:
                readings[-1].table.rows.append(row)
            elif _LIKE_A_ROW.match(line):
                readings[-1].table.unreadable.append(line)
    return [_assess(reading) for reading in readings if reading.header]


def _assess(reading: _Reading) -> Assessment:
    table = reading.table
    table.devices, table.hosts = reading.devices, tuple(reading.hosts)
    table.num_ranks = len(reading.devices) or None
    table.cpu_time, table.per_iteration = "cputime" in reading.header, "i_p99" in reading.header
    return nccl.assess(
        table, Assessment(FORMAT, "the header of the table: size, count, type, time, algbw, busbw")
    )


def _without_prefix(line: str) -> str:
    """Launchers put the rank or the host before each line."""
    if line[:1].isdigit():
        return line.partition(":")[2].strip() if _NUMBERED.match(line) else line
    return line if line.startswith("#") else _PREFIX.sub("", line)


def _comment(line: str, reading: _Reading) -> None:
    table = reading.table
    if found := _RANK.match(line):
        reading.devices[found[1]] = found[4].strip()[:80]
        reading.hosts[found[2][:80]] = None
    elif _HEADER.match(line):
        reading.header = line
    elif found := _PROGRAM.search(line):
        table.program = found[1][:40]
    elif found := _BOUNDS.match(line):
        table.out_of_bounds, table.verdict, table.ended = int(found[1]), found[2], True
    elif found := _AVERAGE.match(line):
        try:
            table.average = Printed.of(found[1])
        except ValueError:
            table.ended = False
    elif "warmup iters" in line:
        asked = ((name.strip(":"), value) for name, value in _ASKED.findall(line))
        table.wrong_settings += [pair for pair in asked if not _ASKED_VALUE.fullmatch(pair[1])]
        settings = {name: int(value) for name, value in _SETTING.findall(line)}
        table.warmup, table.iterations = settings.get("warmup iters"), settings.get("iters")


def _row(tokens: list[str], header: str) -> Row | None:
    """Read from the right: type and root may be blank in older tables, so the left has no fixed number of columns."""
    while len(tokens) > 4 and (_DATE.match(tokens[-2]) or _DATE.match(tokens[-1])):
        tokens = tokens[: -2 if _DATE.match(tokens[-2]) else -1]
    width = 8 if "i_p99" in header else 4
    num_sides = 2 if header.count("algbw") > 1 else 1
    left, right = tokens[: -width * num_sides], tokens[-width * num_sides :]
    if len(left) < 3 or len(right) < width * num_sides:
        # In-place only, as for the replay of a trace: the other half is blank.
        if num_sides == 1 or len(tokens) < 3 + width:
            return None
        left, right, num_sides = tokens[:-width], tokens[-width:], 1
    if not _SIZE.fullmatch(left[0]) or not _SIZE.fullmatch(left[1]):
        return None
    try:
        sides = [_side(right[place * width : place * width + 4]) for place in range(num_sides)]
        return Row(
            int(left[0]),
            left[2],
            left[3] if len(left) > 3 else "",
            sides[0],
            sides[1] if len(sides) > 1 else None,
        )
    except ValueError:
        return None


def _side(tokens: list[str]) -> Side:
    time, algbw, busbw, wrong = tokens
    return Side(
        Printed.of(time),
        Printed.of(algbw),
        Printed.of(busbw),
        None if wrong in _NOTHING else Printed.of(wrong).value,
    )
