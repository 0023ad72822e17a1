"""Checks of a planner's advice against the page's table, and what an experiment keeps of many pieces of advice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from parproof.oracles import decision as oracle
from parproof.subjects.decision_protocol import Advice, Constraints


def assert_advice(
    found: Advice,
    primary: str,
    severity: float,
    secondary: tuple[str, ...],
    limits: Constraints,
    closed: frozenset[str],
) -> None:
    """Pressures, scores, order, decision, measurements and open risks are the table's."""
    __tracebackhide__ = True
    scores = oracle.scores(primary, secondary, limits)
    compared = (
        ("pressures", (found.primary, found.severity, found.secondary), (primary, severity, secondary)),
        ("scores", {c.plan: c.score for c in found.candidates}, scores),
        ("order", [c.plan for c in found.candidates], oracle.ranking(scores)),
        ("decision", found.decision, oracle.verdict(scores, primary, secondary, closed)),
        ("measure", sorted(found.measure), sorted(oracle.measurements(scores))),
        ("risks", {c.plan: c.open_risk for c in found.candidates}, oracle.open_risks(scores, closed)),
    )
    for what, observed, expected in compared:
        if observed != expected:
            raise AssertionError(
                f"{what} {observed}, expected {expected}: primary {primary}, secondary {secondary}, {limits},"
                f" answered {sorted(closed)}"
            )


def summary(advised: Iterable[Advice]) -> dict[str, Any]:
    """By what was advised — plans that tie joined by «+» — the cases, the risks seen open, and what to measure next."""
    kept: dict[str, dict[str, Any]] = {}
    for advice in advised:
        best = advice.candidates[:1] if not advice.tied_plans else advice.candidates[: len(advice.tied_plans)]
        name = "+".join(candidate.plan for candidate in best) or "none"
        entry = kept.setdefault(
            name, {"cases": 0, "accepted": 0, "risk": [], "next_measurements": list(advice.measure)}
        )
        entry["cases"] += 1
        entry["accepted"] += advice.decision == "accept"
        entry["risk"] = sorted({*entry["risk"], *(c.open_risk for c in best if c.open_risk)})
    return {"plan": kept}
