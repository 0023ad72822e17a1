"""Ledgers of all ranks as a few lines: equal lines of several ranks are written once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from parproof.ledger.rows import Row


def summarize(ledgers: Sequence[Sequence[Row]]) -> list[dict[str, Any]]:
    """One line for each (op, dtype, group size, phase, control) and amount, with the ranks it holds for."""
    lines: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for rank, rows in enumerate(ledgers):
        sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
        for row in rows:
            total = sums[row.op, row.dtype, len(row.members), row.phase, row.control]
            for place, amount in enumerate((1, row.in_bytes, row.out_bytes)):
                total[place] += amount
        for kind, (calls, in_bytes, out_bytes) in sums.items():
            lines[(*kind, calls, in_bytes, out_bytes)].append(rank)
    names = ("op", "dtype", "group_size", "phase", "control", "calls", "in_bytes", "out_bytes")
    return [dict(zip(names, line, strict=True)) | {"ranks": ranks} for line, ranks in sorted(lines.items())]


def agrees(measured: Iterable[Mapping[str, Any]], predicted: Mapping[str, Any]) -> bool:
    """Do the payload lines of the predicted rank add up to the prediction, and is nothing left over?

    Each measured line counts for the most specific predicted line it belongs to.
    """
    rest = [line for line in measured if not line["control"] and predicted["rank"] in line["ranks"]]
    wanted: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    for line in predicted["lines"]:
        size = line["group_size"] or len(line["members"])
        for place, amount in enumerate(_AMOUNTS):
            wanted[line["op"], size, line["dtype"], line["phase"]][place] += line[amount]
    for kind in sorted(wanted, key=lambda k: (sum(map(bool, k)), k[3].count("/")), reverse=True):
        mine = [line for line in rest if _belongs(line, *kind)]
        rest = [line for line in rest if not _belongs(line, *kind)]
        if [sum(line[amount] for line in mine) for amount in _AMOUNTS] != wanted[kind]:
            return False
    return not rest


_AMOUNTS = ("calls", "in_bytes", "out_bytes")


def _belongs(line: Mapping[str, Any], op: str, group_size: int, dtype: str, phase: str) -> bool:
    return (
        line["op"] == op
        and group_size in (0, line["group_size"])
        and dtype in ("", line["dtype"])
        and (not phase or line["phase"] == phase or line["phase"].startswith(phase + "/"))
    )
