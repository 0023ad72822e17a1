"""What a plan means: who owns which expert, how many places there are, who finds one; and plans that cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

from parproof.errors import InvalidPlan
from parproof.subjects.expert_protocol import DISPATCHERS, GATES, NORMALISATIONS, SCOPES, ExpertPlan

Matrix = list[list[int]]  # source rank × expert


def owners(plan: ExpertPlan, num_ranks: int) -> list[int]:
    """Expert → rank of the ep group. Errors: InvalidPlan for an expert that no rank has."""
    if not plan.placement:
        if plan.num_experts % num_ranks:
            raise InvalidPlan(
                f"{plan.num_experts} experts over {num_ranks} ranks leave {plan.num_experts % num_ranks}",
                expected="a divisible number of experts, or an explicit placement",
            )
        share = plan.num_experts // num_ranks
        return [expert // share for expert in range(plan.num_experts)]
    return check_owners(plan.placement, plan.num_experts, num_ranks)


def check_owners(placement: Sequence[int], num_experts: int, num_ranks: int) -> list[int]:
    """The placement as a list, if it gives each expert one of the ranks."""
    if len(placement) != num_experts:
        raise InvalidPlan(
            f"{len(placement)} owners for {num_experts} experts", expected="an owner for every expert"
        )
    for expert, owner in enumerate(placement):
        if not 0 <= owner < num_ranks:
            raise InvalidPlan(
                f"expert {expert} belongs to rank {owner} of {num_ranks}", expected="an owner that exists"
            )
    return list(placement)


def check_plan(plan: ExpertPlan) -> None:
    """Refuse, by name, what cannot be on any group."""
    for word, value, known in (
        ("dispatcher", plan.dispatcher, DISPATCHERS),
        ("gate", plan.gate, GATES),
        ("capacity scope", plan.capacity_scope, SCOPES),
        ("normalisation", plan.normalisation, NORMALISATIONS),
    ):
        if value not in known:
            raise InvalidPlan(f"{word} {value!r}", expected=f"one of {', '.join(known)}")
    if not 0 < plan.top_k <= plan.num_experts:
        raise InvalidPlan(f"top {plan.top_k} of {plan.num_experts} experts", expected="1 to all of them")
    if plan.capacity_factor is not None and not plan.capacity_factor > 0:
        raise InvalidPlan(
            f"capacity factor {plan.capacity_factor} leaves no place at any expert", expected="more than 0"
        )
    if plan.dispatcher == "padded" and plan.capacity_factor is None:
        raise InvalidPlan("dispatcher 'padded' without a capacity", expected="a capacity factor to pad to")


def capacity(num_routes: int, plan: ExpertPlan) -> int:
    """Places at each expert: ceil(routes · factor / E), without binary rounding of the factor; all without one."""
    if plan.capacity_factor is None:
        return num_routes
    return ceil(Fraction(str(plan.capacity_factor)) * num_routes / plan.num_experts)


def capacities(routed: Matrix, plan: ExpertPlan) -> list[int]:
    """Places that apply to each source rank's routes."""
    if plan.capacity_scope == "rank":
        return [capacity(sum(row), plan) for row in routed]
    return [capacity(sum(map(sum, routed)), plan)] * len(routed)


def kept(routed: Matrix, plan: ExpertPlan) -> Matrix:
    """How many routes of each source find a place at each expert; sources are served in rank order."""
    places = capacities(routed, plan)
    taken = [0] * plan.num_experts
    found: Matrix = []
    for source, row in enumerate(routed):
        before = taken if plan.capacity_scope == "group" else [0] * plan.num_experts
        mine = [min(want, max(0, places[source] - used)) for want, used in zip(row, before, strict=True)]
        taken = [used + new for used, new in zip(taken, mine, strict=True)]
        found.append(mine)
    return found
