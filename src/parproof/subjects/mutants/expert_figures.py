"""Mutants of PAR-EXPERT-DISPATCH's figures and verdicts: the reference with one lie each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from parproof.errors import InvalidPlan
from parproof.subjects.expert_protocol import Account, ExpertPlan
from parproof.subjects.protocol import Subject
from parproof.subjects.reference import expert_plan as plans
from parproof.subjects.reference.expert import ExpertParallel

Routes = Sequence[Sequence[Sequence[int]]]


class DropsCountAsEffective(ExpertParallel):
    def account(self, plan: ExpertPlan, routes: Routes, owners: Sequence[int], **sizes: Any) -> Account:
        honest = super().account(plan, routes, owners, **sizes)
        return dataclasses.replace(honest, effective_tokens=sum(honest.loads))


class PaddingIsLoad(ExpertParallel):
    def account(self, plan: ExpertPlan, routes: Routes, owners: Sequence[int], **sizes: Any) -> Account:
        filled = [[list(token) or [0] for token in tokens] for tokens in routes]
        return super().account(plan, filled, owners, **sizes)


class LogicalAsNetwork(ExpertParallel):
    def account(self, plan: ExpertPlan, routes: Routes, owners: Sequence[int], **sizes: Any) -> Account:
        honest = super().account(plan, routes, owners, **sizes)
        return dataclasses.replace(honest, network_bytes=honest.logical_bytes)


class DroppedRowsOnTheNetwork(ExpertParallel):
    def account(self, plan: ExpertPlan, routes: Routes, owners: Sequence[int], **sizes: Any) -> Account:
        honest = super().account(plan, routes, owners, **sizes)
        unlimited = super().account(dataclasses.replace(plan, capacity_factor=None), routes, owners, **sizes)
        return dataclasses.replace(honest, network_bytes=unlimited.network_bytes)


class RoundTripIsOneWay(ExpertParallel):
    def account(self, plan: ExpertPlan, routes: Routes, owners: Sequence[int], **sizes: Any) -> Account:
        honest = super().account(plan, routes, owners, **sizes)
        return dataclasses.replace(honest, round_trip_bytes=honest.network_bytes)


class AllRoutesCross(ExpertParallel):
    def account(self, plan: ExpertPlan, routes: Routes, owners: Sequence[int], **sizes: Any) -> Account:
        return dataclasses.replace(super().account(plan, routes, owners, **sizes), cross_rank_ratio=1.0)


class SpreadAsSkew(ExpertParallel):
    def account(self, plan: ExpertPlan, routes: Routes, owners: Sequence[int], **sizes: Any) -> Account:
        honest = super().account(plan, routes, owners, **sizes)
        mean = sum(honest.loads) / len(honest.loads)
        spread = (max(honest.loads) - min(honest.loads)) / mean if mean else 0.0
        return dataclasses.replace(honest, max_over_mean=round(spread, 3))


class MeanOverBusyExperts(ExpertParallel):
    def account(self, plan: ExpertPlan, routes: Routes, owners: Sequence[int], **sizes: Any) -> Account:
        honest = super().account(plan, routes, owners, **sizes)
        busy = [load for load in honest.loads if load]
        ratio = round(max(busy) * len(busy) / sum(busy), 3) if busy else 0.0
        return dataclasses.replace(honest, max_over_mean=ratio)


class _OtherCapacity(ExpertParallel):
    def places(self, num_routes: int, plan: ExpertPlan) -> int:
        raise NotImplementedError

    def account(self, plan: ExpertPlan, routes: Routes, owners: Sequence[int], **sizes: Any) -> Account:
        honest = super().account(plan, routes, owners, **sizes)
        if plan.capacity_factor is None:
            return honest
        places = self.places(sum(honest.loads), plan)
        lost = sum(max(load - places, 0) for load in honest.loads)
        return dataclasses.replace(
            honest, capacity=places, overflow=lost, effective_tokens=sum(honest.loads) - lost
        )


class CapacityRoundsDown(_OtherCapacity):
    def places(self, num_routes: int, plan: ExpertPlan) -> int:
        return math.floor(num_routes / plan.num_experts * (plan.capacity_factor or 0))


class CapacityInBinary(_OtherCapacity):
    def places(self, num_routes: int, plan: ExpertPlan) -> int:
        return math.ceil(num_routes / plan.num_experts * (plan.capacity_factor or 0))


class IdsFromTheEnd(ExpertParallel):
    def row(self, plan: ExpertPlan, source: int, tokens: Sequence[Sequence[int]]) -> list[int]:
        row = [0] * plan.num_experts
        for token in tokens:
            for expert in token:
                if expert >= plan.num_experts:
                    raise InvalidPlan(f"rank {source} routes to expert id {expert}, out of range")
                row[expert] += 1
        return row


class MissingOwnerIsRankZero(ExpertParallel):
    def account(self, plan: ExpertPlan, routes: Routes, owners: Sequence[int], **sizes: Any) -> Account:
        filled = [*owners, *[0] * (plan.num_experts - len(owners))]
        return super().account(plan, routes, filled, **sizes)


class FirstSourceLast(ExpertParallel):
    def kept(self, routed: plans.Matrix, plan: ExpertPlan) -> plans.Matrix:
        return plans.kept(routed[::-1], plan)[::-1]


class StrictLimits(ExpertParallel):
    def recommend(self, account: Account) -> str:
        nudged = dataclasses.replace(account, max_over_mean=account.max_over_mean + 1e-9)
        return super().recommend(nudged)


class IgnoresCrossing(ExpertParallel):
    def recommend(self, account: Account) -> str:
        return super().recommend(dataclasses.replace(account, cross_rank_ratio=0.0))


class AcceptsNothing(ExpertParallel):
    def recommend(self, account: Account) -> str:
        return super().recommend(account) if sum(account.loads) else "accept"


class AnyFigureWillDo(ExpertParallel):
    def recommend(self, account: Account) -> str:
        if not sum(account.loads):
            return "reject"
        if account.overflow == 0 and (account.max_over_mean <= 1.2 or account.cross_rank_ratio <= 0.5):
            return "accept"
        return super().recommend(account)


def __getattr__(name: str) -> Subject:
    """`forgets_x` is the subject of the class ForgetsX."""
    kind = globals().get("".join(word.capitalize() for word in name.split("_")))
    if name.startswith("_") or kind is None:
        raise AttributeError(f"{__name__} has no attribute {name}")
    return Subject(name=name, mechanisms={"expert": f"{__name__}:{kind.__name__}"})
