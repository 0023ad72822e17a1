"""Ledgers of all ranks as a few lines: equal lines of several ranks are written once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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


class Compared(NamedTuple):
    """One kind of traffic: what was predicted (None: nothing) beside what was seen; amounts are calls, in, out."""

    op: str
    group_size: int
    dtype: str
    phase: str
    predicted: list[int] | None
    measured: list[int]
    agrees: bool


def agrees(measured: Iterable[Mapping[str, Any]], predicted: Mapping[str, Any]) -> bool:
    """Do the payload lines of the predicted rank add up to the prediction, and is nothing left over?"""
    return all(line.agrees for line in compared(measured, predicted))


def compared(measured: Iterable[Mapping[str, Any]], predicted: Mapping[str, Any]) -> list[Compared]:
    """Prediction and ledger of the predicted rank side by side, then what nobody predicted.

    Each measured line counts for the most specific predicted line it belongs to. Control traffic, and messages in
    a group of one, which go nowhere, may be left unpredicted.
    """
    rest = [line for line in measured if predicted["rank"] in line["ranks"] and _inside(line, predicted)]
    wanted: dict[tuple[str, int, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for line in predicted["lines"]:
        size = line["group_size"] or len(line["members"])
        for place, amount in enumerate(_AMOUNTS):
            wanted[line["op"], size, line["dtype"], line["phase"]][place] += line[amount]
    found = []
    for kind in sorted(wanted, key=lambda k: (sum(map(bool, k)), k[3].count("/")), reverse=True):
        mine = [line for line in rest if _belongs(line, *kind)]
        rest = [line for line in rest if not _belongs(line, *kind)]
        payload = _amounts([line for line in mine if not line["control"]])
        # A barrier may be predicted; the bookkeeping beside a payload of the same kind need not be.
        seen = payload if wanted[kind] == payload else _amounts(mine)
        found.append(Compared(*kind, wanted[kind], seen, wanted[kind] == seen))
    for line in rest:
        kind = line["op"], line["group_size"], line["dtype"], line["phase"]
        allowed = line["control"] or line["group_size"] == 1
        found.append(Compared(*kind, None, _amounts([line]), allowed))
    return found


def _amounts(lines: Iterable[Mapping[str, Any]]) -> list[int]:
    together = list(lines)
    return [sum(line[amount] for line in together) for amount in _AMOUNTS]


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
