"""The regression gate: which changes a CI job fails on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parproof.errors import UsageError
from parproof.evidence.compare import correctness, traffic
from parproof.evidence.compare.times import REGRESSIONS, Times
from parproof.evidence.compare.words import shown

# `regress` is the first four. `undecided` is for a gate that must not pass because nothing could be told.
KINDS = ("correctness", "level", "traffic", "time")
UNDECIDED = "undecided"


def parse(words: Sequence[str]) -> tuple[str, ...]:
    """The kinds that `--fail-on` asks for. Errors: UsageError for an unknown word."""
    asked = {word.strip() for given in words for word in given.split(",") if word.strip()}
    known = {"regress", UNDECIDED, *KINDS}
    if asked - known:
        raise UsageError(
            f"«{shown(sorted(asked - known)[0])}»",
            expected=f"one or more of regress, {', '.join(KINDS)}, {UNDECIDED}",
            where="--fail-on",
        )
    return tuple(k for k in (*KINDS, UNDECIDED) if k in asked or ("regress" in asked and k in KINDS))


def regressions(
    changes: Sequence[correctness.Change], sent: Sequence[traffic.Change], times: Times
) -> dict[str, int]:
    """How many of each kind there are; undecided: where one may hide."""
    open_ones = len(times.undecided) + sum(c.change == "undecided" for c in sent)
    return {
        "correctness": sum(c.regression for c in changes if c.kind == "correctness"),
        "level": sum(c.regression for c in changes if c.kind == "level"),
        "traffic": sum(c.regression for c in sent),
        "time": len(times.of(*REGRESSIONS)),
        UNDECIDED: open_ones,
    }


def fails(asked: Sequence[str], found: Mapping[str, int]) -> bool:
    """Is there one of a kind that was asked for?"""
    return any(found[kind] for kind in asked)
