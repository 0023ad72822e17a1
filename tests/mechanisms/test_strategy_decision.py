"""PAR-STRATEGY-DECISION: which parallel strategy to try next.

Question   Given pressures, constraints and answered risks, which plan, and may it be accepted?
Baseline   the decision table of the source page, evaluated row by row, with the plans that cannot apply taken out.
Candidate  --subject: a planner.
Claims     C1  primary and secondary pressures, scores, order, decision, risks and measurements equal the table's, for all cases.
           C2  no plan is offered that cannot apply, whatever presses.
           C3  acceptance is reachable for every plan, only with its risk answered, alone at the top, unpressed otherwise.
           C4  ties are stated, never broken in silence, and never accepted.
           C5  more answered risks never make a decision worse, and less pressure elsewhere neither.
           C6  signals that are missing, unknown or no share are refused.
Not shown  that a plan performs: accept means that it may become the next baseline, on the evidence that was consumed.
           That this suite's own records suffice for it: accept takes benchmarks of real models on one workload, and these
           are records of small exact ones, each experiment on workloads of its own.
"""

import dataclasses
import itertools

import pytest

from parproof.checks import decision as checks
from parproof.errors import InvalidPlan
from parproof.oracles.decision import PLANS, RISK, SIGNALS
from parproof.subjects.decision_protocol import Constraints, Situation

pytestmark = [pytest.mark.experiment("PAR-STRATEGY-DECISION"), pytest.mark.lanes("cpu")]

EVERY_RISK = frozenset(RISK.values())
ANSWERED = {"open": (), "some": ("dp_zero", "ep", "cp"), "answered": PLANS}
ORDER = ("collect_more_evidence", "tune", "accept")
SUBSETS = [frozenset(s) for n in range(len(EVERY_RISK) + 1) for s in itertools.combinations(EVERY_RISK, n)]
STEPS = [(closed, closed | {risk}) for closed in SUBSETS for risk in EVERY_RISK - closed]
LIMITS = [Constraints(*values) for values in itertools.product((False, True), repeat=6)]
by_primary = pytest.mark.parametrize("primary", SIGNALS)


def pressed(primary, *secondary, level=0.9):
    """Signals with one strongest and some others at the threshold."""
    return {name: level if name == primary else 0.5 if name in secondary else 0.1 for name in SIGNALS}


@pytest.fixture
def planner(subject):
    """The subject's planner."""
    return subject.make("decision")


@pytest.mark.claim("C1")
@by_primary
@pytest.mark.parametrize("plans", ANSWERED.values(), ids=ANSWERED)
def test_c1_advice_equals_the_table_in_every_case(plans, primary, planner, evidence):
    """64 constraints, and each other signal as secondary or none: 448 cases for each primary and each state of risks."""
    closed, advised = frozenset(RISK[plan] for plan in plans), []
    evidence.on("decision_table", primary=primary, answered=sorted(closed))
    for limits, other in itertools.product(LIMITS, (None, *SIGNALS)):
        if other == primary:
            continue
        secondary = () if other is None else (other,)
        advised.append(planner.advise(Situation(pressed(primary, *secondary), limits, closed)))
        checks.assert_advice(advised[-1], primary, 0.9, secondary, limits, closed)
    evidence.measured(cases=len(advised), **checks.summary(advised))


@pytest.mark.claim("C1")
def test_c1_without_pressure_nothing_is_advised(planner):
    """Zero everywhere is no primary of 0.0, and no reason to change anything."""
    found = planner.advise(Situation(dict.fromkeys(SIGNALS, 0.0), Constraints(has_moe=True), EVERY_RISK))
    assert (found.primary, found.decision) == (None, "collect_more_evidence"), (
        f"decision without pressure: {found}"
    )


@pytest.mark.claim("C2")
@by_primary
def test_c2_no_plan_is_offered_that_cannot_apply(primary, planner):
    """Expert parallelism without experts, replicas of a model that does not fit: the page's chain accepts the first."""
    for limits in LIMITS:
        plans = {c.plan for c in planner.advise(Situation(pressed(primary), limits, EVERY_RISK)).candidates}
        impossible = {
            "ep": not limits.has_moe,
            "cp": not limits.long_context,
            "tp": not limits.large_linear_layer,
            "replica": not (limits.serving_workload and limits.model_fits_single_gpu),
            "dp_zero": limits.serving_workload,
        }
        offered = sorted(plan for plan in plans if impossible.get(plan))
        assert not offered, f"cannot apply: {offered} with {primary} and {limits}"


@pytest.mark.claim("C3")
def test_c3_acceptance_is_reachable_for_every_plan_and_for_the_right_reason(planner, evidence):
    """Over all primaries and constraints: 448 cases, once with every risk answered and once with none."""
    accepted, with_open_risk = set(), 0
    for primary, limits in itertools.product(SIGNALS, LIMITS):
        found = planner.advise(Situation(pressed(primary), limits, EVERY_RISK))
        if found.decision == "accept":
            accepted.add(found.candidates[0].plan)
            reason = f"{found.candidates[0].plan} with {primary} and {limits}"
            assert not found.tied_plans, f"accepted in a tie: {reason}"
            one = Situation(pressed(primary), limits, EVERY_RISK - {RISK[found.candidates[0].plan]})
            assert planner.advise(one).decision == "tune", f"accepted with an open risk: {reason}"
        with_open_risk += planner.advise(Situation(pressed(primary), limits)).decision == "accept"
    evidence.measured(plans_accepted=sorted(accepted))
    assert accepted == set(PLANS), f"never accepted: {sorted(set(PLANS) - accepted)}"
    assert with_open_risk == 0, f"accepted with an open risk: {with_open_risk} cases"


@pytest.mark.claim("C4")
def test_c4_ties_are_stated_and_never_accepted(planner):
    """Experts and long context score alike; so do two equal pressures."""
    limits = Constraints(model_fits_single_gpu=True, has_moe=True, long_context=True)
    found = planner.advise(Situation(pressed("communication"), limits, EVERY_RISK))
    assert found.tied_plans == ("ep", "cp"), f"tie: plans {found.tied_plans}"
    assert found.decision == "tune", f"tie: {found.decision}"
    both = pressed("state_memory") | {"long_context": 0.9}
    found = planner.advise(Situation(both, limits, EVERY_RISK))
    assert found.tied_signals == ("state_memory", "long_context"), f"tie: signals {found.tied_signals}"
    backwards = dict(reversed(both.items()))
    assert planner.advise(Situation(backwards, limits, EVERY_RISK)) == found, (
        "tie: broken by the order of the input"
    )


@pytest.mark.claim("C5")
@by_primary
def test_c5_no_further_answer_makes_a_decision_worse(primary, planner):
    """Every single step over all 64 sets of answered risks, alone and beside the pressure that changes scores."""
    beside = "load_imbalance" if primary == "communication" else "communication"
    for limits, secondary in itertools.product(LIMITS, ((), (beside,))):
        signals = pressed(primary, *secondary)
        rank = {
            closed: ORDER.index(planner.advise(Situation(signals, limits, closed)).decision)
            for closed in SUBSETS
        }
        worse = [(sorted(less), sorted(more)) for less, more in STEPS if rank[more] < rank[less]]
        assert not worse, f"worse with more evidence: {worse[0]} for {primary}, {secondary}, {limits}"


@pytest.mark.claim("C5")
@by_primary
def test_c5_less_pressure_elsewhere_makes_no_decision_worse(primary, planner):
    """Each other signal as the one secondary pressure that goes away, with every risk answered and with none."""
    for limits, other, closed in itertools.product(LIMITS, SIGNALS, (frozenset(), EVERY_RISK)):
        situations = (
            Situation(pressed(primary, other), limits, closed),
            Situation(pressed(primary), limits, closed),
        )
        tense, calm = (ORDER.index(planner.advise(situation).decision) for situation in situations)
        assert tense <= calm, f"worse with less pressure: {primary}, {other}, {limits}, {sorted(closed)}"


@pytest.mark.claim("C6")
@pytest.mark.parametrize(
    "value", [-0.1, 1.1, float("nan"), float("inf")], ids=["below", "above", "nan", "infinite"]
)
def test_c6_a_signal_that_is_no_share_is_refused(value, planner):
    """By name."""
    with pytest.raises(InvalidPlan, match="signal communication is"):
        planner.advise(Situation(pressed("state_memory") | {"communication": value}, Constraints()))


@pytest.mark.claim("C6")
def test_c6_a_missing_or_unknown_signal_is_refused(planner):
    """A missing one is not zero."""
    signals = pressed("state_memory")
    with pytest.raises(InvalidPlan, match="speed"):
        planner.advise(Situation(signals | {"speed": 0.1}, Constraints()))
    del signals["communication"]
    with pytest.raises(InvalidPlan, match="communication"):
        planner.advise(Situation(signals, dataclasses.replace(Constraints())))
