"""Did every claim that held still hold, and is as much shown by it? Before any time is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from parproof.evidence.compare.pairing import Pair
from parproof.evidence.compare.runs import Facts, every_attempt, level_place

# From best to worst. Of several runs of a side the worst counts: a run that passed hides none that failed.
OUTCOMES = ("ok", "skipped", "missing", "expected failure", "blocked", "failed")
_FOUND_A_FAULT = ("expected failure", "blocked", "failed")


@dataclass(frozen=True)
class Change:
    """One test whose outcome or level is not the same on both sides.

    kind   correctness or level; regression: the gate may fail on it
    """

    kind: str
    name: str
    experiment: str | None
    claims: tuple[str, ...]
    baseline: str
    candidate: str
    regression: bool
    reason: str


def changes(pairs: Sequence[Pair]) -> Iterator[Change]:
    """Of every pair at most one change of outcome and one of level."""
    for pair in pairs:
        first, second = worst(pair.baseline), worst(pair.candidate)
        old, new = _reports(pair.baseline), _reports(pair.candidate)
        told = pair.facts
        if first != second or (first == "expected failure" and old != new):
            reason = next((f.reason for f in pair.candidate if f and f.status != "ok" and f.reason), "")
            yield Change(
                "correctness",
                pair.name,
                told.experiment,
                told.claims,
                _with_report(first, pair.baseline),
                _with_report(second, pair.candidate),
                _is_worse(first, second) or (first == second and not new <= old),
                reason,
            )
        low, high = _level(pair.baseline), _level(pair.candidate)
        if first == second == "ok" and low != high:
            worse = level_place(high) < level_place(low)
            yield Change(
                "level", pair.name, told.experiment, told.claims, str(low), str(high), worse, "computed level"
            )


def badness(change: Change) -> tuple[bool, int, str]:
    """Sorts regressions first, the worst outcome first."""
    told = change.candidate.partition(" (")[0]
    return not change.regression, -(OUTCOMES.index(told) if told in OUTCOMES else 0), change.name


def worst(side: Sequence[Facts | None]) -> str:
    """The outcome of a test on one side."""
    return max((outcome(facts) for facts in side), key=OUTCOMES.index)


def outcome(facts: Facts | None) -> str:
    """The status, with a known defect told apart from a fault, and absence from both."""
    if facts is None:
        return "missing"
    return "expected failure" if facts.status == "failed" and facts.expected else facts.status


def wrong_values(pairs: Sequence[Pair]) -> dict[tuple[str | None, str | None], str]:
    """(experiment, subject) → the claim about values, traffic or failures that did not hold, on either side.

    A known defect that is on both sides alike is a finding of both, and stops no reading. A failed test without a
    subject speaks of all of its experiment: subject None.
    """
    found: dict[tuple[str | None, str | None], str] = {}
    for pair in pairs:
        known = worst(pair.baseline) == worst(pair.candidate) == "expected failure"
        for side, runs in (("baseline", pair.baseline), ("candidate", pair.candidate)):
            for facts in runs:
                if facts is None or outcome(facts) not in _FOUND_A_FAULT or known:
                    continue
                if facts.tiers and set(facts.tiers) <= {"timing", "decision"}:
                    continue
                key = facts.experiment, facts.subject[1] if facts.subject else None
                found.setdefault(
                    key, f"{'/'.join(facts.claims) or facts.nodeid} {outcome(facts)} in the {side}"
                )
    return found


def _is_worse(first: str, second: str) -> bool:
    """A known fault that is skipped or gone is not mended; a listed one is still a fault."""
    if second == "ok" or (first in ("skipped", "missing") and second in ("skipped", "missing")):
        return False
    if first in ("failed", "blocked") and second in ("failed", "blocked"):
        return False
    return first != second


def _level(side: Sequence[Facts | None]) -> str | None:
    return min((facts.level for facts in side if facts), key=level_place, default=None)


def _reports(side: Sequence[Facts | None]) -> set[str]:
    return {facts.expected for facts in every_attempt(side) if facts.expected}


def _with_report(told: str, side: Sequence[Facts | None]) -> str:
    return f"{told} ({', '.join(sorted(_reports(side)))})" if told == "expected failure" else told
