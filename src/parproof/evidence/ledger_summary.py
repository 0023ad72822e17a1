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

    Each measured line counts for the most specific predicted line it belongs to. Control traffic, and messages in
    a group of one, which go nowhere, may be left unpredicted.
    """
    rest = [line for line in measured if predicted["rank"] in line["ranks"] and _inside(line, predicted)]
    wanted: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    for line in predicted["lines"]:
        size = line["group_size"] or len(line["members"])
        for place, amount in enumerate(_AMOUNTS):
            wanted[line["op"], size, line["dtype"], line["phase"]][place] += line[amount]
    for kind in sorted(wanted, key=lambda k: (sum(map(bool, k)), k[3].count("/")), reverse=True):
        mine = [line for line in rest if _belongs(line, *kind)]
        rest = [line for line in rest if not _belongs(line, *kind)]
        payload = [line for line in mine if not line["control"]]
        # A barrier may be predicted; the bookkeeping beside a payload of the same kind need not be.
        if wanted[kind] not in (
            [sum(line[amount] for line in some) for amount in _AMOUNTS] for some in (payload, mine)
        ):
            return False
    return all(line["control"] or line["group_size"] == 1 for line in rest)


def _inside(line: Mapping[str, Any], predicted: Mapping[str, Any]) -> bool:
    """Is the line in a phase that the prediction speaks of? Without any it speaks of all."""
    return not predicted["within"] or any(
        line["phase"] == phase or line["phase"].startswith(phase + "/") for phase in predicted["within"]
    )


_AMOUNTS = ("calls", "in_bytes", "out_bytes")


def _belongs(line: Mapping[str, Any], op: str, group_size: int, dtype: str, phase: str) -> bool:
    return (
        line["op"] == op
        and group_size in (0, line["group_size"])
        and dtype in ("", line["dtype"])
        and (not phase or f"/{phase}/" in f"/{line['phase']}/")
    )
