"""The planner: only plans that can apply, ties stated, acceptance only for answered risks."""

from __future__ import annotations

from collections.abc import Mapping

from parproof.errors import InvalidPlan
from parproof.subjects.decision_protocol import (
    MEASURE,
    PLANS,
    RISK,
    SECONDARY_AT,
    SIGNALS,
    Advice,
    Candidate,
    Constraints,
    Situation,
)


class Decision:
    """Each rule is a method, so that a variant can change exactly one."""

    def advise(self, situation: Situation) -> Advice:
        """See the protocol."""
        self.check(situation.signals)
        signals, limits = situation.signals, situation.constraints
        severity = max(signals.values())
        strongest = tuple(name for name in SIGNALS if severity > 0 and signals[name] == severity)
        primary = strongest[0] if strongest else None
        secondary = tuple(name for name in SIGNALS if name != primary and signals[name] >= SECONDARY_AT)
        candidates = self.ranked(primary, secondary, limits, situation.closed_risks)
        best = candidates[0].score if candidates else 0
        tied = tuple(c.plan for c in candidates if c.score == best)
        tied_plans = tied if len(tied) > 1 else ()
        return Advice(
            primary,
            severity,
            strongest if len(strongest) > 1 else (),
            secondary,
            candidates,
            tied_plans,
            self.decide(primary, secondary, candidates, tied_plans),
            self.measure(candidates, tied_plans),
        )

    def check(self, signals: Mapping[str, float]) -> None:
        """Nothing is guessed for a signal that is missing or out of range."""
        if set(signals) != set(SIGNALS):
            wrong = sorted(set(signals) ^ set(SIGNALS))
            raise InvalidPlan(f"signals {wrong} missing or unknown", expected=f"exactly {', '.join(SIGNALS)}")
        for name, value in signals.items():
            if not 0.0 <= value <= 1.0:
                raise InvalidPlan(
                    f"signal {name} is {value}", expected="a number from 0 to 1", where="decision"
                )

    def applies(self, plan: str, limits: Constraints) -> bool:
        """Can the plan be carried out at all?"""
        return {
            "dp_zero": not limits.serving_workload,
            "pp": True,
            "tp": limits.large_linear_layer,
            "ep": limits.has_moe,
            "cp": limits.long_context,
            "replica": limits.serving_workload and limits.model_fits_single_gpu,
        }[plan]

    def score(self, plan: str, primary: str | None, secondary: tuple[str, ...], limits: Constraints) -> int:
        """Points of one plan; see the protocol."""
        if plan == "dp_zero":
            return 3 if primary == "state_memory" else 0
        if plan == "pp":
            needed = primary == "activation_memory" or not limits.model_fits_single_gpu
            return 3 * needed - (primary == "pipeline_bubble")
        if plan == "tp":
            pressed = primary == "communication" or "communication" in secondary
            return 3 * limits.strong_interconnect - 2 * (pressed or not limits.strong_interconnect)
        pressure = {"ep": "load_imbalance", "cp": "long_context", "replica": "serving_queue"}[plan]
        return 3 + 2 * (primary == pressure)

    def ranked(
        self, primary: str | None, secondary: tuple[str, ...], limits: Constraints, closed: frozenset[str]
    ) -> tuple[Candidate, ...]:
        """Plans that apply and score, best first."""
        scored = [
            (self.score(plan, primary, secondary, limits), plan)
            for plan in PLANS
            if self.applies(plan, limits)
        ]
        kept = sorted(
            (pair for pair in scored if pair[0] > 0), key=lambda pair: (-pair[0], PLANS.index(pair[1]))
        )
        return tuple(
            Candidate(plan, score, None if RISK[plan] in closed else RISK[plan]) for score, plan in kept
        )

    def decide(
        self,
        primary: str | None,
        secondary: tuple[str, ...],
        candidates: tuple[Candidate, ...],
        tied_plans: tuple[str, ...],
    ) -> str:
        """Accept only what nothing speaks against."""
        if primary is None or not candidates:
            return "collect_more_evidence"
        if tied_plans or secondary or candidates[0].open_risk is not None:
            return "tune"
        return "accept"

    def measure(self, candidates: tuple[Candidate, ...], tied_plans: tuple[str, ...]) -> tuple[str, ...]:
        """What tells the best plans apart."""
        plans = tied_plans or tuple(c.plan for c in candidates[:1]) or ("none",)
        return tuple(dict.fromkeys(name for plan in plans for name in MEASURE[plan]))
