"""Mutants of PAR-STRATEGY-DECISION: the reference planner with one lie each (the catalogue says which)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from parproof.errors import InvalidPlan
from parproof.subjects.decision_protocol import RISK, SIGNALS, Advice, Candidate, Constraints, Situation
from parproof.subjects.protocol import Subject
from parproof.subjects.reference.decision import Decision


class ExpertsFromNowhere(Decision):
    def applies(self, plan: str, limits: Constraints) -> bool:
        return plan == "ep" or super().applies(plan, limits)

    def score(self, plan: str, primary: Any, secondary: Any, limits: Constraints) -> int:
        points = super().score(plan, primary, secondary, limits)
        return points - 3 if plan == "ep" and not limits.has_moe else points


class ReplicasThatDoNotFit(Decision):
    def applies(self, plan: str, limits: Constraints) -> bool:
        return limits.serving_workload if plan == "replica" else super().applies(plan, limits)


class ShardsWhenServing(Decision):
    def applies(self, plan: str, limits: Constraints) -> bool:
        return plan == "dp_zero" or super().applies(plan, limits)


class IgnoresSecondaryCommunication(Decision):
    def score(self, plan: str, primary: Any, secondary: Any, limits: Constraints) -> int:
        return super().score(plan, primary, (), limits)


class BubbleIsNoReason(Decision):
    def score(self, plan: str, primary: Any, secondary: Any, limits: Constraints) -> int:
        return super().score(plan, None if primary == "pipeline_bubble" else primary, secondary, limits)


class KeepsZeroScores(Decision):
    def ranked(self, primary: Any, secondary: Any, limits: Any, closed: Any) -> tuple[Candidate, ...]:
        kept = super().ranked(primary, secondary, limits, closed)
        known = {c.plan for c in kept}
        extra = "dp_zero" not in known and self.applies("dp_zero", limits)
        return (*kept, Candidate("dp_zero", 0, None)) if extra else kept


class WorstFirst(Decision):
    def ranked(self, primary: Any, secondary: Any, limits: Any, closed: Any) -> tuple[Candidate, ...]:
        return super().ranked(primary, secondary, limits, closed)[::-1]


class EveryRiskForEver(Decision):
    def ranked(self, primary: Any, secondary: Any, limits: Any, closed: Any) -> tuple[Candidate, ...]:
        return super().ranked(primary, secondary, limits, frozenset())


class NoRiskAtAll(Decision):
    def decide(self, primary: Any, secondary: Any, candidates: Any, tied_plans: Any) -> str:
        calm = tuple(dataclasses.replace(c, open_risk=None) for c in candidates)
        return super().decide(primary, secondary, calm, tied_plans)


class AcceptsUnderPressure(Decision):
    def decide(self, primary: Any, secondary: Any, candidates: Any, tied_plans: Any) -> str:
        return super().decide(primary, (), candidates, tied_plans)


class AcceptsTies(Decision):
    def decide(self, primary: Any, secondary: Any, candidates: Any, tied_plans: Any) -> str:
        return super().decide(primary, secondary, candidates, ())


class HidesTies(Decision):
    def advise(self, situation: Situation) -> Advice:
        return dataclasses.replace(super().advise(situation), tied_plans=(), tied_signals=())


class InputOrderDecides(Decision):
    def advise(self, situation: Situation) -> Advice:
        made = super().advise(situation)
        first = max(situation.signals, key=lambda name: situation.signals[name])
        return dataclasses.replace(made, primary=first) if made.tied_signals else made


class ThresholdExcluded(Decision):
    def advise(self, situation: Situation) -> Advice:
        lowered = {n: v - 1e-9 if v == 0.5 else v for n, v in situation.signals.items()}
        return super().advise(dataclasses.replace(situation, signals=lowered))


class AdvisesAtRest(Decision):
    def decide(self, primary: Any, secondary: Any, candidates: Any, tied_plans: Any) -> str:
        return super().decide(primary or SIGNALS[0], secondary, candidates, tied_plans)


class MeasuresOneOfTwo(Decision):
    def measure(self, candidates: Any, tied_plans: Any) -> tuple[str, ...]:
        return super().measure(candidates, ())


class RisksSwapped(Decision):
    def advise(self, situation: Situation) -> Advice:
        made = super().advise(situation)
        other = {RISK["tp"]: RISK["pp"], RISK["pp"]: RISK["tp"]}
        told = (
            dataclasses.replace(c, open_risk=other.get(c.open_risk or "", c.open_risk))
            for c in made.candidates
        )
        return dataclasses.replace(made, candidates=tuple(told))


class RiskOfTheBestOnly(Decision):
    def ranked(self, primary: Any, secondary: Any, limits: Any, closed: Any) -> tuple[Candidate, ...]:
        kept = super().ranked(primary, secondary, limits, closed)
        return kept[:1] + tuple(dataclasses.replace(c, open_risk=None) for c in kept[1:])


class MeasuresTensorForContext(Decision):
    def measure(self, candidates: Any, tied_plans: Any) -> tuple[str, ...]:
        names = super().measure(candidates, tied_plans)
        return tuple("all_reduce_payload_mb" if name == "sequence_payload_mb" else name for name in names)


class TwoAnswersUnsettle(Decision):
    def advise(self, situation: Situation) -> Advice:
        made = super().advise(situation)
        two = len(situation.closed_risks) == 2
        return dataclasses.replace(made, decision="collect_more_evidence") if two else made


class AnswersMakeItWorse(Decision):
    def decide(self, primary: Any, secondary: Any, candidates: Any, tied_plans: Any) -> str:
        made = super().decide(primary, secondary, candidates, tied_plans)
        answered = bool(candidates) and all(c.open_risk is None for c in candidates)
        return "collect_more_evidence" if answered and secondary else made


class MissingIsZero(Decision):
    def check(self, signals: Mapping[str, float]) -> None:
        super().check({name: signals.get(name, 0.0) for name in SIGNALS})

    def advise(self, situation: Situation) -> Advice:
        filled = {name: situation.signals.get(name, 0.0) for name in SIGNALS}
        return super().advise(dataclasses.replace(situation, signals=filled))


class ListsWhatIsRight(Decision):
    def check(self, signals: Mapping[str, float]) -> None:
        if set(signals) < set(SIGNALS):
            raise InvalidPlan("a signal is missing", expected=f"exactly {', '.join(SIGNALS)}")
        super().check(signals)


class Clamps(Decision):
    def advise(self, situation: Situation) -> Advice:
        within = {n: min(1.0, max(0.0, v)) if v == v else 0.0 for n, v in situation.signals.items()}
        return super().advise(dataclasses.replace(situation, signals=within))


LIES = SimpleNamespace(
    experts_from_nowhere=ExpertsFromNowhere,
    replicas_that_do_not_fit=ReplicasThatDoNotFit,
    shards_when_serving=ShardsWhenServing,
    ignores_secondary_communication=IgnoresSecondaryCommunication,
    bubble_is_no_reason=BubbleIsNoReason,
    keeps_zero_scores=KeepsZeroScores,
    worst_first=WorstFirst,
    every_risk_for_ever=EveryRiskForEver,
    no_risk_at_all=NoRiskAtAll,
    accepts_under_pressure=AcceptsUnderPressure,
    accepts_ties=AcceptsTies,
    hides_ties=HidesTies,
    input_order_decides=InputOrderDecides,
    threshold_excluded=ThresholdExcluded,
    advises_at_rest=AdvisesAtRest,
    measures_one_of_two=MeasuresOneOfTwo,
    risks_swapped=RisksSwapped,
    risk_of_the_best_only=RiskOfTheBestOnly,
    measures_tensor_for_context=MeasuresTensorForContext,
    two_answers_unsettle=TwoAnswersUnsettle,
    answers_make_it_worse=AnswersMakeItWorse,
    missing_is_zero=MissingIsZero,
    lists_what_is_right=ListsWhatIsRight,
    clamps=Clamps,
)

# One subject a lie, by the names of the catalogue.
globals().update(
    {name: Subject(name=name, mechanisms={"decision": f"{__name__}:LIES.{name}"}) for name in vars(LIES)}
)
