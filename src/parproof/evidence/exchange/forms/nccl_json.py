"""The JSON that nccl-tests writes with `-J`: truth as words, `nan` as a word, `root` as a word, all of the environment."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from parproof.evidence.exchange import assessment, quantities
from parproof.evidence.exchange.assessment import Assessment, mapping, number, word
from parproof.evidence.exchange.forms import nccl
from parproof.evidence.exchange.forms.nccl import Printed, Row, Side, Table, count_of

FORMAT = "nccl-tests JSON"
MAX_ROWS = 10_000
_HALF_UNIT = 5e-7  # six decimals are written


def recognise(document: Any) -> Assessment | None:
    """Rows with a size and a measurement out of place or in place."""
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        return None
    rows = [mapping(row) for row in document["results"][:MAX_ROWS]]
    if (
        "config" not in document
        and "nccl_version" not in document
        and "average_bus_bandwidth" not in document
    ):
        return None
    if not all("size" in row and ("out_of_place" in row or "in_place" in row) for row in rows):
        return None
    told = Assessment(FORMAT, "results with size, out_of_place and in_place")
    shown = {name: value for name, value in document.items() if name not in ("env", "args")}
    assessment.check_finite(told, shown, "")
    table = Table()
    _config(document, table, told)
    for place, row in enumerate(rows):
        _row(row, f"results[{place}]", table, told)
    _end(document, table)
    quantities.check(told, shown)
    if "env" in document:
        told.limited("environment-kept-out", "env", "the environment")
    errors = [str(e) for e in document["errors"] if e] if isinstance(document.get("errors"), list) else []
    if errors:
        told.found("run-errors", "errors", "; ".join(errors), "a run without errors")
        told.give("conclusion", failure=assessment.safe(errors))
    return nccl.assess(table, told)


def _config(document: dict[str, Any], table: Table, told: Assessment) -> None:
    """One device is listed for each process; ranks are processes × threads × GPUs a thread."""
    config = mapping(document.get("config"))
    listed = config.get("devices", document.get("devices"))
    devices = [mapping(device) for device in listed] if isinstance(listed, list) else []
    each = (count_of(config.get("nthreads")) or 1) * (count_of(config.get("ngpus")) or 1)
    table.num_ranks = len(devices) * each or None
    if each > 1:
        told.limited(
            "devices-incomplete", "config.devices", f"{len(devices)} devices, {each} ranks a process"
        )
    table.devices = {
        str(device.get("rank")): (word(device.get("device_info")) or "")[:80]
        for device in devices
        if word(device.get("device_info"))
    }
    table.hosts = tuple(
        dict.fromkeys(str(device["hostname"])[:80] for device in devices if word(device.get("hostname")))
    )
    table.warmup, table.iterations = count_of(config.get("warmup_iters")), count_of(config.get("iterations"))
    arguments = document.get("args")
    if isinstance(arguments, list) and arguments:
        found = re.search(r"(\w+?)_perf\b", str(arguments[0])[-200:])
        table.program = found[1] if found else None
        words = [str(argument) for argument in arguments[:200]]
        table.of_slowest = ("-a", "3") in pairwise(words) or ("--average", "3") in pairwise(words)


def _row(row: dict[str, Any], where: str, table: Table, told: Assessment) -> None:
    size = count_of(row.get("size"))
    sides: list[Side | None] = []
    for name in ("out_of_place", "in_place"):
        given = row.get(name)
        side = _side(mapping(given), table) if given is not None else None
        if given is not None and side is None:
            told.found("not-finite", f"{where}.{name}", given, "time, alg_bw and bus_bw as finite numbers")
        sides.append(side)
        table.per_iteration = table.per_iteration or f"{name}_per_iter" in row
    if size is None:
        told.found("not-positive", f"{where}.size", row.get("size"), "a number of bytes")
        return
    table.rows.append(Row(size, str(row.get("type"))[:20], str(row.get("redop"))[:20], sides[0], sides[1]))


def _side(given: dict[str, Any], table: Table) -> Side | None:
    table.cpu_time = table.cpu_time or "cpu_time" in given
    found = [
        number(given.get("cpu_time", given.get("time"))),
        number(given.get("alg_bw")),
        number(given.get("bus_bw")),
    ]
    if any(value is None for value in found):
        return None
    time, algbw, busbw = (Printed(value, _HALF_UNIT) for value in found if value is not None)
    return Side(time, algbw, busbw, number(given.get("nwrong")))


def _end(document: dict[str, Any], table: Table) -> None:
    bounds, average = mapping(document.get("out_of_bounds")), mapping(document.get("average_bus_bandwidth"))
    table.out_of_bounds = count_of(bounds.get("count"))
    # Written as a word; a truth value is what a later version may write.
    okay = {"true": "OK", "false": "FAILED"}.get(str(bounds.get("okay")).lower())
    table.verdict = okay
    bandwidth = number(average.get("bandwidth"))
    table.average = None if bandwidth is None else Printed(bandwidth, _HALF_UNIT)
    table.ended = table.out_of_bounds is not None and table.average is not None
