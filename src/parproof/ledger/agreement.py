"""Do the ranks' own ledgers agree? Finds the collectives that ranks called differently. No torch here.

gloo answers some mismatches with silent wrong numbers and some with SIGABRT; torch's DETAIL mode misses the
reduce op, the root and the order. Comparing what the ranks wrote down names them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parproof.ledger.rows import COLLECTIVES, Row


@dataclass(frozen=True)
class Disagreement:
    """One place where ledgers part: the `index`-th collective of a group, or an unmatched send or receive."""

    group: str
    index: int
    aspect: str
    calls: dict[int, str]

    def __str__(self) -> str:
        listed = "; ".join(f"rank {rank}: {call}" for rank, call in sorted(self.calls.items()))
        return f"{self.aspect} differs at call {self.index} of group {self.group}: {listed}"


def disagreements(ledgers: Mapping[int, Sequence[Row]]) -> list[Disagreement]:
    """The first disagreement of each group, then unmatched point-to-point traffic."""
    found = []
    groups = sorted({(row.group, row.members) for rows in ledgers.values() for row in rows})
    for name, members in groups:
        present = [rank for rank in members if rank in ledgers]
        sequences = {
            rank: [
                r for r in ledgers[rank] if (r.group, r.members) == (name, members) and r.op in COLLECTIVES
            ]
            for rank in present
        }
        part = _first_difference(name, sequences)
        if part is not None:
            found.append(part)
    return found + _unmatched(ledgers)


def _first_difference(name: str, sequences: Mapping[int, Sequence[Row]]) -> Disagreement | None:
    for index in range(max((len(rows) for rows in sequences.values()), default=0)):
        row_of = {rank: rows[index] if index < len(rows) else None for rank, rows in sequences.items()}
        for aspect, key in _ASPECTS:
            if len({key(row) for row in row_of.values()}) > 1:
                calls = {rank: row.describe() if row else "no call" for rank, row in row_of.items()}
                return Disagreement(name, index, aspect, calls)
    return None


def _shape_key(row: Row | None) -> object:
    """Shapes that must agree. Uneven all_to_all may differ; so may what only a root hands in or out."""
    if row is None or row.op in ("all_to_all", "gather", "scatter", "barrier", "monitored_barrier"):
        return None
    return row.shapes if row.op != "all_gather" or row.form != "list" else None


_ASPECTS = (
    ("participation", lambda row: row is None),
    ("operation", lambda row: row.op),
    ("reduce op", lambda row: row.reduce_op),
    ("root", lambda row: row.peer),
    ("dtype", lambda row: row.dtype if row.op not in ("scatter", "barrier", "monitored_barrier") else None),
    ("shape", _shape_key),
)


def _unmatched(ledgers: Mapping[int, Sequence[Row]]) -> list[Disagreement]:
    """Every send needs a receive of the same pair and tag; any-source receives take what is left over."""
    balance: Counter[tuple[int, int]] = Counter()
    open_receives: Counter[int] = Counter()
    for rank, rows in ledgers.items():
        for row in rows:
            if row.op == "send" and row.peer is not None:
                balance[rank, row.peer] += 1
            elif row.op == "recv" and row.peer == -1:
                open_receives[rank] += 1
            elif row.op == "recv" and row.peer is not None:
                balance[row.peer, rank] -= 1
    found = []
    for (source, target), surplus in sorted(balance.items()):
        if surplus > 0:
            taken = min(surplus, open_receives[target])
            open_receives[target] -= taken
            surplus -= taken
        if surplus and target in ledgers and source in ledgers:
            word = "send" if surplus > 0 else "recv"
            calls = {
                source: f"{max(surplus, 0)} unmatched send",
                target: f"{max(-surplus, 0)} unmatched recv",
            }
            found.append(Disagreement("point-to-point", 0, f"{word} count", calls))
    return found
