"""Ledger checks: calls and bytes equal the prediction, and no other kind of call occurred."""

from __future__ import annotations

from collections.abc import Sequence

from parproof.cost.traffic import Traffic
from parproof.ledger.rows import Row


def assert_ledger(
    rows: Sequence[Row], predicted: Sequence[Traffic], *, where: str, ignore_control: bool = True
) -> None:
    """Compare what one rank was seen to send with the prediction, exactly.

    Control traffic (object collectives, barriers) is left out unless `ignore_control` is False.
    """
    __tracebackhide__ = True
    rest = [row for row in rows if not (row.control and ignore_control)]
    problems = []
    for line in predicted:
        mine = [row for row in rest if _belongs(row, line)]
        rest = [row for row in rest if not _belongs(row, line)]
        seen = (len(mine), sum(row.in_bytes for row in mine), sum(row.out_bytes for row in mine))
        if seen != (line.calls, line.in_bytes, line.out_bytes):
            problems.append(
                f"{_name(line)}: observed {seen[0]} calls, {seen[1]} bytes in, {seen[2]} bytes out;"
                f" expected {line.calls} calls, {line.in_bytes} bytes in, {line.out_bytes} bytes out"
            )
    if rest:
        kinds = sorted({row.op for row in rest})
        problems.append(f"calls nobody predicted: {', '.join(kinds)}; first: {rest[0].describe()}")
    if problems:
        raise AssertionError(f"{where}: ledger differs from the prediction: " + "; ".join(problems))


def _belongs(row: Row, line: Traffic) -> bool:
    return (
        row.op == line.op
        and line.group_size in (0, len(row.members))
        and (not line.phase or row.phase == line.phase or row.phase.startswith(line.phase + "/"))
    )


def _name(line: Traffic) -> str:
    parts = [line.op]
    if line.group_size:
        parts.append(f"over {line.group_size} ranks")
    if line.phase:
        parts.append(f"in {line.phase}")
    return " ".join(parts)
