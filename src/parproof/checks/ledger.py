"""Ledger checks: calls and bytes equal the prediction, and no other kind of call occurred."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from parproof.cost.traffic import Traffic
from parproof.ledger.rows import Row

if TYPE_CHECKING:
    from parproof.ranks.run import Run


def assert_ledger(
    rows: Sequence[Row], predicted: Sequence[Traffic], *, where: str, ignore_control: bool = True
) -> None:
    """Compare what one rank was seen to send with the prediction, exactly.

    Each row counts for the most specific line it belongs to; lines of the same kind are added up, so a
    prediction may be put together layer by layer. Control traffic (object collectives, barriers) is left out
    unless `ignore_control` is False. A call that raised fails the check: nobody knows what it sent.
    """
    __tracebackhide__ = True
    counted = [row for row in rows if not (row.control and ignore_control)]
    lines = sorted(_added_up(predicted), key=_num_criteria, reverse=True)
    problems = [f"{_described(row)} raised {row.raised}" for row in counted if row.raised]
    left: dict[str, list[Row]] = defaultdict(list)
    for row in counted:
        left[row.op].append(row)
    for line in lines:
        mine, left[line.op] = _split(left[line.op], line)
        problem = _compared(line, mine)
        if problem:
            problems.append(problem)
    if surplus := sorted(chain.from_iterable(left.values()), key=lambda row: row.seq):
        kinds = ", ".join(sorted({row.op for row in surplus}))
        more = f" and {len(surplus) - 1} more" if len(surplus) > 1 else ""
        problems.append(f"calls nobody predicted: {kinds}; first: {_described(surplus[0])}{more}")
    if problems:
        raise AssertionError(f"{where}: ledger differs from the prediction: " + "; ".join(problems))


def assert_ledger_complete(run: Run) -> None:
    """Every group's own count of calls is explained by the ledgers' rows.

    Fails, rather than passes, where the backend does not tell: a ledger that cannot be checked proves nothing
    about calls that did not occur.
    """
    __tracebackhide__ = True
    if run.ledger_complete is None:
        backend = run.observation.get("backend")
        raise AssertionError(f"no count of calls to compare the ledger with (backend {backend})")
    if not run.ledger_complete:
        raise AssertionError("ledger is not complete: " + "; ".join(run.ledger_gaps))


def _added_up(predicted: Sequence[Traffic]) -> list[Traffic]:
    """One line for each kind of call."""
    kinds: dict[Traffic, Traffic] = {}
    for line in predicted:
        kind = replace(line, calls=0, in_bytes=0, out_bytes=0)
        so_far = kinds.get(kind, kind)
        kinds[kind] = replace(
            kind,
            calls=so_far.calls + line.calls,
            in_bytes=so_far.in_bytes + line.in_bytes,
            out_bytes=so_far.out_bytes + line.out_bytes,
        )
    return list(kinds.values())


def _num_criteria(line: Traffic) -> tuple[int, int]:
    """How much a line asks for; a deeper phase asks for more than the phase around it."""
    given = (bool(line.members), bool(line.group_size), bool(line.dtype), bool(line.phase))
    return sum(given), line.phase.count("/")


def _compared(line: Traffic, mine: Sequence[Row]) -> str:
    seen = (len(mine), sum(row.in_bytes for row in mine), sum(row.out_bytes for row in mine))
    if seen == (line.calls, line.in_bytes, line.out_bytes):
        return ""
    text = (
        f"{_name(line)}: observed {seen[0]} calls, {seen[1]} bytes in, {seen[2]} bytes out;"
        f" expected {line.calls} calls, {line.in_bytes} bytes in, {line.out_bytes} bytes out"
    )
    return text + (f"; last: {_described(mine[-1])}" if len(mine) > line.calls else "")


def _split(rows: Sequence[Row], line: Traffic) -> tuple[list[Row], list[Row]]:
    """(rows that belong to the line, the others): of rows of its operation."""
    mine: list[Row] = []
    others: list[Row] = []
    for row in rows:
        (mine if _belongs(row, line) else others).append(row)
    return mine, others


def _belongs(row: Row, line: Traffic) -> bool:
    return (
        line.group_size in (0, len(row.members))
        and (not line.members or row.members == line.members)
        and (not line.dtype or row.dtype == line.dtype)
        and (not line.phase or row.phase == line.phase or row.phase.startswith(line.phase + "/"))
    )


def _name(line: Traffic) -> str:
    parts = [line.op]
    if line.dtype:
        parts.append(f"of {line.dtype}")
    if line.members:
        parts.append(f"over ranks {list(line.members)}")
    elif line.group_size:
        parts.append(f"over {line.group_size} ranks")
    if line.phase:
        parts.append(f"in {line.phase}")
    return " ".join(parts)


def _described(row: Row) -> str:
    where = f" in {row.phase}" if row.phase else ""
    return f"{row.describe()} over ranks {list(row.members)}{where}"
