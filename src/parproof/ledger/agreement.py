"""Do the ranks' own ledgers agree? Finds the calls that ranks made differently. No torch here.

gloo answers some mismatches with silent wrong numbers and some with SIGABRT; torch's DETAIL mode misses the
reduce op, the root and the order. Comparing what the ranks wrote down names them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from parproof.ledger.rows import COLLECTIVES, Row

_Ledgers = Mapping[int, Sequence[Row]]


@dataclass(frozen=True)
class Disagreement:
    """One place where ledgers part: the `index`-th collective of a group, or of a pair's sends and receives."""

    group: str
    index: int
    aspect: str
    calls: dict[int, str]

    def __str__(self) -> str:
        listed = "; ".join(f"rank {rank}: {call}" for rank, call in sorted(self.calls.items()))
        return f"{self.aspect} differs at call {self.index} of group {self.group}: {listed}"


def disagreements(ledgers: _Ledgers) -> list[Disagreement]:
    """The first disagreement of each group, then the first of each pair of ranks and tag.

    What may differ on purpose is not compared: forms of one operation, the shape where only the number of
    elements counts (broadcast, gathers), buffers of ranks that are not the root, sizes of uneven splits.
    """
    from parproof.ledger.matching import unmatched

    found = []
    for (name, members), sequences in sorted(_by_group(ledgers).items()):
        complete = {rank: sequences.get(rank, []) for rank in members if rank in ledgers}
        part = _first_difference(name, members, complete)
        if part is not None:
            found.append(part)
    return found + unmatched(ledgers)


def _by_group(ledgers: _Ledgers) -> dict[tuple[str, tuple[int, ...]], dict[int, list[Row]]]:
    """(group name, members) → rank → its collectives. Disjoint groups may share a name."""
    groups: dict[tuple[str, tuple[int, ...]], dict[int, list[Row]]] = {}
    for rank, rows in ledgers.items():
        for row in rows:
            if row.op in COLLECTIVES:
                groups.setdefault((row.group, row.members), {}).setdefault(rank, []).append(row)
    return groups


def _first_difference(
    name: str, members: tuple[int, ...], sequences: Mapping[int, Sequence[Row]]
) -> Disagreement | None:
    for index, calls in enumerate(zip_longest(*sequences.values())):
        row_of = dict(zip(sequences, calls, strict=True))
        aspect = _differing_aspect(members, row_of)
        if aspect:
            described = {rank: row.describe() if row else "no call" for rank, row in row_of.items()}
            return Disagreement(name, index, aspect, described)
    return None


def _differing_aspect(members: tuple[int, ...], row_of: Mapping[int, Row | None]) -> str:
    rows = {rank: row for rank, row in row_of.items() if row is not None}
    if len(rows) < len(row_of):
        return "participation"
    for aspect, key in _ASPECTS:
        if len({key(row) for row in rows.values()}) > 1:
            return aspect
    # A buffer of the wrong size that every rank refused alike was never sent.
    refused = all(row.raised for row in rows.values())
    return "split" if not refused and _splits_differ(members, rows) else ""


def _dtype_key(row: Row) -> object:
    """What only a root hands in or nobody does has no dtype to agree on."""
    return None if row.op in ("barrier", "monitored_barrier") or not row.shapes else row.dtype


def _shape_key(row: Row) -> object:
    """The shape where elements meet elements, the number of bytes where a buffer is only copied.

    A gather may be uneven where it takes lists, so that its parts are compared one by one instead.
    """
    if row.op in ("all_reduce", "reduce", "reduce_scatter"):
        return row.shapes
    return row.in_bytes if row.op == "broadcast" else None


def _form_key(row: Row) -> object:
    """gloo runs a reduce_scatter of a list as several calls, so forms of it do not meet."""
    return row.form == "list" if row.op == "reduce_scatter" else None


_ASPECTS: tuple[tuple[str, Callable[[Row], object]], ...] = (
    ("operation", lambda row: row.op),
    ("reduce op", lambda row: row.reduce_op),
    ("root", lambda row: row.peer),
    ("dtype", _dtype_key),
    ("form", _form_key),
    ("shape", _shape_key),
)


def _splits_differ(members: tuple[int, ...], rows: Mapping[int, Row]) -> bool:
    """What i hands in for j must be what j expects from i, in bytes."""
    place = {rank: members.index(rank) for rank in rows}
    for i, sender in rows.items():
        for j, receiver in rows.items():
            sent = _part_for(sender, place[j])
            expected = _part_from(receiver, place[i])
            if sent is not None and expected is not None and sent != expected:
                return True
    return False


def _part_for(row: Row, member: int) -> int | None:
    """Bytes this call hands in for a member; None when the call does not say."""
    if row.op in ("all_to_all", "scatter", "reduce_scatter"):
        return row.in_parts[member] if member < len(row.in_parts) else None
    if row.op in ("gather", "all_gather"):
        return row.in_bytes
    return None


def _part_from(row: Row, member: int) -> int | None:
    """Bytes this call expects from a member; None when the call does not say."""
    if row.op == "all_gather" and row.form != "list":
        return row.in_bytes
    if row.op in ("all_to_all", "gather", "all_gather"):
        return row.out_parts[member] if member < len(row.out_parts) else None
    if row.op == "reduce_scatter" or (row.op == "scatter" and row.peer == row.members[member]):
        return row.out_bytes
    return None
