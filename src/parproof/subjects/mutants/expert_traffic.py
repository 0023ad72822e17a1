"""Mutants of PAR-EXPERT-DISPATCH's traffic and refusals: the reference with one lie each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from parproof.errors import InvalidPlan
from parproof.subjects.expert_protocol import ExpertPlan
from parproof.subjects.mutants.expert import LyingLayer
from parproof.subjects.protocol import Subject
from parproof.subjects.reference import expert_plan as plans
from parproof.subjects.reference import expert_wire as wire
from parproof.subjects.reference.expert_dispatch import Journey


class DenseFallback(LyingLayer):
    def all_to_all(self, j: Journey) -> Tensor:
        return self.all_gather(j)


class PadsWithoutBeingAsked(LyingLayer):
    def all_to_all(self, j: Journey) -> Tensor:
        return self.padded(dataclasses.replace(j, places=max(map(max, j.kept))))


class DroppedRowsTravel(LyingLayer):
    def kept(self, routed: plans.Matrix) -> plans.Matrix:
        self.limit = torch.tensor(super().kept(routed)[wire.rank_on(self.axes.ep)])
        return routed

    def combine(self, j: Journey, answers: Tensor, token: Tensor, slot: Tensor) -> Tensor:
        ids = self.last.ids
        has_place = self.positions(ids) < self.limit[ids.clamp(min=0)]
        return super().combine(j, answers * has_place[token, slot].unsqueeze(1), token, slot)


class CountsAgainForTheLog(LyingLayer):
    def combine(self, j: Journey, answers: Tensor, token: Tensor, slot: Tensor) -> Tensor:
        if self.axes.ep is not None:
            wire.sum_over(torch.tensor(j.kept[j.me]), self.axes.ep)
        return super().combine(j, answers, token, slot)


class SwapsWithTheOtherCopy(LyingLayer):
    crossed: Any = None

    def swap(self, rows: Tensor, sent: Sequence[int], received: Sequence[int], group: wire.Group) -> Tensor:
        # Of ep × tp = 2 × 2 ranks: the other expert rank's other copy, which holds the same rows.
        if wire.size_of(self.axes.tp) == wire.size_of(group) == 2:
            self.crossed = self.crossed or dist.new_subgroups_by_enumeration([[0, 3], [1, 2]])[0]
            group = self.crossed
        return super().swap(rows, sent, received, group)


class ClampsIds(LyingLayer):
    def __call__(self, x: Tensor, valid: Tensor, replayed: Tensor | None = None) -> Tensor:
        replayed = None if replayed is None else replayed.clamp(0, self.plan.num_experts - 1)
        return super().__call__(x, valid, replayed)


class RefusesAlone(LyingLayer):
    def __call__(self, x: Tensor, valid: Tensor, replayed: Tensor | None = None) -> Tensor:
        if replayed is not None and int(replayed.max()) >= self.plan.num_experts:
            raise InvalidPlan(f"expert id out of range: {int(replayed.max())}")
        return super().__call__(x, valid, replayed)


class ComparesCountsOnly(LyingLayer):
    def digest(self, ids: Tensor) -> Tensor:
        return torch.tensor(0)


class LastRankTakesTheRest(LyingLayer):
    def __init__(self, plan: ExpertPlan, params: Any, axes: Any) -> None:
        ranks = wire.size_of(axes.ep)
        if not plan.placement and plan.num_experts % ranks:
            share = plan.num_experts // ranks
            owners = tuple(min(e // share, ranks - 1) for e in range(plan.num_experts))
            plan = dataclasses.replace(plan, placement=owners)
        super().__init__(plan, params, axes)


class ZeroIsNoLimit(LyingLayer):
    def __init__(self, plan: ExpertPlan, params: Any, axes: Any) -> None:
        super().__init__(
            dataclasses.replace(plan, capacity_factor=plan.capacity_factor or None), params, axes
        )


def __getattr__(name: str) -> Subject:
    """`forgets_x` is the subject of the class ForgetsX."""
    kind = globals().get("".join(word.capitalize() for word in name.split("_")))
    if name.startswith("_") or kind is None:
        raise AttributeError(f"{__name__} has no attribute {name}")
    return Subject(name=name, mechanisms={"expert": f"{__name__}:{kind.__name__}.as_subject"})
