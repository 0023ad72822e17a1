"""Calls and bytes that ranks were seen to send. They are counted, so any change is one: no statistics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from parproof.evidence.compare.pairing import Pair
from parproof.evidence.compare.runs import Facts, every_attempt, fields_of

Amounts = tuple[int, int, int]
_NAMES = ("op", "dtype", "group_size", "phase", "control")


@dataclass(frozen=True)
class Change:
    """One kind of message that changed. Amounts are (calls, bytes in, bytes out), summed over ranks.

    change   more, less: every amount that changed grew, or shrank; moved: other amounts or other ranks;
             unseen: what saw every call no longer does; unsteady: runs of the candidate disagree;
             undecided: runs of the baseline disagree, so there is nothing to compare with
    """

    name: str
    kind: Mapping[str, object]
    change: str
    baseline: Amounts
    candidate: Amounts

    @property
    def regression(self) -> bool:
        """May the gate fail on it?"""
        return self.change not in ("less", "undecided")


def changes(pairs: Sequence[Pair]) -> tuple[int, list[Change]]:
    """(tests whose traffic was compared, changes). Only runs that passed, in every attempt, and kept a ledger are compared."""
    found: list[Change] = []
    number = 0
    for pair in pairs:
        passed = [[f for f in side if f and f.status == "ok"] for side in (pair.baseline, pair.candidate)]
        sides = [every_attempt(side) for side in passed]
        if all(sides) and all(f.ledger for f in sides[0]):
            number += 1
            found += _of_pair(pair.name, *sides)
    return number, found


def badness(change: Change) -> tuple[bool, int, str, str]:
    """Sorts regressions first, what grew most first."""
    return (
        not change.regression,
        sum(change.baseline) - sum(change.candidate),
        change.name,
        label(change.kind),
    )


def _of_pair(name: str, baseline: Sequence[Facts], candidate: Sequence[Facts]) -> Iterator[Change]:
    nothing: Amounts = (0, 0, 0)
    seen = [all(f.ledger and f.ledger_complete for f in side) for side in (baseline, candidate)]
    if seen == [True, False] or not all(f.ledger for f in candidate):
        yield Change(name, {}, "unseen", nothing, nothing)
        return
    first, second = {f.ledger for f in baseline}, {f.ledger for f in candidate}
    if len(first) > 1 or len(second) > 1:
        yield Change(name, {}, "undecided" if len(first) > 1 else "unsteady", nothing, nothing)
        return
    left, right = fields_of(baseline[0].ledger), fields_of(candidate[0].ledger)
    for kind in sorted({*left, *right}):
        one, other = left.get(kind, {}), right.get(kind, {})
        if one != other:
            told = dict(zip(_NAMES, json.loads(kind), strict=True))
            yield Change(name, told, _direction(one, other), _total(one), _total(other))


def _direction(one: Mapping[str, list[int]], other: Mapping[str, list[int]]) -> str:
    """By rank: what one rank saves another may send."""
    none = [0, 0, 0]
    steps = [
        after - before
        for rank in {*one, *other}
        for before, after in zip(one.get(rank, none), other.get(rank, none), strict=True)
    ]
    if min(steps) >= 0:
        return "more"
    return "less" if max(steps) <= 0 else "moved"


def _total(of_ranks: Mapping[str, list[int]]) -> Amounts:
    calls, sent, received = (sum(amounts[place] for amounts in of_ranks.values()) for place in range(3))
    return calls, sent, received


def label(kind: Mapping[str, object]) -> str:
    """«all_reduce float32 of 4, forward»."""
    if not kind:
        return "all calls"
    text = f"{kind['op']} {kind['dtype']} of {kind['group_size']}"
    if kind["phase"]:
        text += f", {kind['phase']}"
    return text + (" (control)" if kind["control"] else "")
