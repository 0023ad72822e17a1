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


def agrees(measured: Iterable[Mapping[str, Any]], predicted: Sequence[Mapping[str, Any]]) -> bool:
    """Do the payload lines of every rank add up to the prediction, and is nothing left over?"""
    payload = [line for line in measured if not line["control"]]
    ranks = {rank for line in payload for rank in line["ranks"]}
    return all(_rank_agrees([line for line in payload if rank in line["ranks"]], predicted) for rank in ranks)


def _rank_agrees(lines: list[Mapping[str, Any]], predicted: Sequence[Mapping[str, Any]]) -> bool:
    rest = list(lines)
    for expected in predicted:
        mine = [line for line in rest if _belongs(line, expected)]
        rest = [line for line in rest if not _belongs(line, expected)]
        for amount in ("calls", "in_bytes", "out_bytes"):
            if sum(line[amount] for line in mine) != expected[amount]:
                return False
    return not rest


def _belongs(line: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    phase = expected["phase"]
    return (
        line["op"] == expected["op"]
        and expected["group_size"] in (0, line["group_size"])
        and (not phase or line["phase"] == phase or line["phase"].startswith(phase + "/"))
    )
