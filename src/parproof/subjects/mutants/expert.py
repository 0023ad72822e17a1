"""Mutants of PAR-EXPERT-DISPATCH: the reference with one lie each (the catalogue says which)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from parproof.subjects.protocol import Subject
from parproof.subjects.reference import expert_plan as plans
from parproof.subjects.reference import expert_wire as wire
from parproof.subjects.reference.expert import ExpertParallel
from parproof.subjects.reference.expert_dispatch import Journey
from parproof.subjects.reference.expert_layer import ExpertLayer


class LyingLayer(ExpertLayer):
    @classmethod
    def as_subject(cls) -> ExpertParallel:
        made = ExpertParallel()
        made.layer_type = cls
        return made

    @contextmanager
    def with_axes(self, **changes: Any) -> Iterator[None]:
        axes = self.axes
        self.axes = dataclasses.replace(axes, **changes)
        yield
        self.axes = axes


class CombineWithoutWeights(LyingLayer):
    def combine(self, j: Journey, answers: Tensor, token: Tensor, slot: Tensor) -> Tensor:
        # The weights stay in the graph, with gradient zero.
        return torch.zeros_like(j.x).index_add(0, token, answers) + 0 * j.weights.sum()


class WeightsTwice(LyingLayer):
    def combine(self, j: Journey, answers: Tensor, token: Tensor, slot: Tensor) -> Tensor:
        return super().combine(j, answers * j.weights[token, slot].unsqueeze(1), token, slot)


class FirstChoiceOnly(LyingLayer):
    def combine(self, j: Journey, answers: Tensor, token: Tensor, slot: Tensor) -> Tensor:
        return super().combine(j, answers * (slot == 0).unsqueeze(1), token, slot)


class CombineInDepartureOrder(LyingLayer):
    def combine(self, j: Journey, answers: Tensor, token: Tensor, slot: Tensor) -> Tensor:
        return super().combine(j, answers, j.token, j.slot)


class AssignsInsteadOfAdding(LyingLayer):
    def combine(self, j: Journey, answers: Tensor, token: Tensor, slot: Tensor) -> Tensor:
        weighted = answers * j.weights[token, slot].unsqueeze(1)
        return torch.zeros_like(j.x).index_put((token,), weighted)


class ReplaysOwnChoice(LyingLayer):
    def __call__(self, x: Tensor, valid: Tensor, replayed: Tensor | None = None) -> Tensor:
        return super().__call__(x, valid, None)


class SkipsEmptyRank(LyingLayer):
    def swap(self, rows: Tensor, sent: Sequence[int], received: Sequence[int], group: wire.Group) -> Tensor:
        if not sum(sent) and not sum(received):
            return rows
        return super().swap(rows, sent, received, group)


class SwappedSplits(LyingLayer):
    def swap(self, rows: Tensor, sent: Sequence[int], received: Sequence[int], group: wire.Group) -> Tensor:
        return super().swap(rows, received, sent, group)


class LastRankOffset(LyingLayer):
    def __init__(self, plan: Any, params: Any, axes: Any) -> None:
        super().__init__(plan, params, axes)
        if self.mine and self.mine[-1] == plan.num_experts - 1 and self.mine[0]:
            with torch.no_grad():
                shifted = [expert - 1 for expert in self.mine]
                self.up.copy_(params["up"][shifted, self.start : self.stop])
                self.down.copy_(params["down"][shifted][:, :, self.start : self.stop])


class GlobalRankInGroup(LyingLayer):
    def my_group(self) -> list[int]:
        # As if the ep group were the block of neighbours that this rank is in.
        p = wire.size_of(self.axes.ep)
        first = dist.get_rank() // (p * wire.size_of(self.axes.tp)) * p
        return list(range(first, first + p))


class GateInSinglePrecision(LyingLayer):
    def gate(self, logits: Tensor, ids: Tensor) -> Tensor:
        return super().gate(logits.float(), ids).to(logits.dtype)


class NoRenormalisation(LyingLayer):
    def gate(self, logits: Tensor, ids: Tensor) -> Tensor:
        if self.plan.gate == "renormalised":
            return torch.softmax(logits, dim=1).gather(1, ids)
        return super().gate(logits, ids)


class FrozenRouter(LyingLayer):
    def gate(self, logits: Tensor, ids: Tensor) -> Tensor:
        return super().gate(logits.detach() + 0 * logits, ids)


class GradientsOfDroppedRoutes(LyingLayer):
    def combine(self, j: Journey, answers: Tensor, token: Tensor, slot: Tensor) -> Tensor:
        # The value of a dropped route is zero, but its weight learns as if the token had answered itself.
        dropped = j.weights - j.weights.detach()
        mask = torch.ones_like(j.weights).index_put((token, slot), torch.zeros(len(token)).to(j.weights))
        return super().combine(j, answers, token, slot) + (dropped * mask).sum(1, keepdim=True) * j.x.detach()


class NoGradientToTokens(LyingLayer):
    def answer(self, rows: Tensor, which: Tensor) -> Tensor:
        return super().answer(rows.detach() + 0 * rows, which)


class NoTpReduceInBackward(LyingLayer):
    def answer(self, rows: Tensor, which: Tensor) -> Tensor:
        with self.with_axes(tp=None):
            rows = super().answer(rows, which)
        return wire.leave(rows, self.axes.tp) if self.axes.tp else rows


class RouterSeesPartialAnswers(LyingLayer):
    def answer(self, rows: Tensor, which: Tensor) -> Tensor:
        rows = wire.enter(rows, self.axes.tp) if self.axes.tp else rows
        with self.with_axes(tp=None):
            return super().answer(rows, which)

    def combine(self, j: Journey, answers: Tensor, token: Tensor, slot: Tensor) -> Tensor:
        out = super().combine(j, answers, token, slot)
        return wire.leave(out, self.axes.tp) if self.axes.tp else out


class RouterSummedOverDpOnly(LyingLayer):
    def gradients(self) -> Any:
        with self.with_axes(data=self.axes.dp):
            return super().gradients()


class ExpertsNotSummedOverDp(LyingLayer):
    def gradients(self) -> Any:
        with self.with_axes(dp=None):
            return super().gradients()


class ExpertsAveragedOverEp(LyingLayer):
    def gradients(self) -> Any:
        found = super().gradients()
        for name in ("up", "down"):
            for piece in found[name]:
                piece.local.div_(wire.size_of(self.axes.ep))
        return found


class TiesToTheHigherId(LyingLayer):
    def choose(self, logits: Tensor) -> Tensor:
        reversed_ids = super().choose(logits.flip(1))
        return self.plan.num_experts - 1 - reversed_ids


class FloorCapacity(LyingLayer):
    def kept(self, routed: plans.Matrix) -> plans.Matrix:
        if self.plan.capacity_factor is None or self.plan.capacity_scope == "rank":
            return super().kept(routed)
        places = int(sum(map(sum, routed)) * self.plan.capacity_factor / self.plan.num_experts)
        found, taken = [], [0] * self.plan.num_experts
        for row in routed:
            found.append([min(n, max(0, places - t)) for n, t in zip(row, taken, strict=True)])
            taken = [t + n for t, n in zip(taken, found[-1], strict=True)]
        return found


class EachRankTakesAllPlaces(LyingLayer):
    def kept(self, routed: plans.Matrix) -> plans.Matrix:
        if self.plan.capacity_scope == "rank":
            return super().kept(routed)
        places = plans.capacity(sum(map(sum, routed)), self.plan)
        return [[min(n, places) for n in row] for row in routed]


class PlacesOfRanksArePooled(LyingLayer):
    def kept(self, routed: plans.Matrix) -> plans.Matrix:
        places = plans.capacity(sum(map(sum, routed)), self.plan)
        rows, taken = [], [0] * self.plan.num_experts
        for row in routed:
            rows.append([min(n, max(0, places - t)) for n, t in zip(row, taken, strict=True)])
            taken = [t + n for t, n in zip(taken, rows[-1], strict=True)]
        return rows


class LaterTokensFirst(LyingLayer):
    def positions(self, ids: Tensor) -> Tensor:
        backwards = super().positions(ids.flip(0, 1))
        return backwards.flip(0, 1)


class KeepsTheFirstRoutes(LyingLayer):
    def choose(self, logits: Tensor) -> Tensor:
        chosen: Tensor = self.__dict__.setdefault("chosen_before", super().choose(logits))
        return chosen if chosen.shape[0] == logits.shape[0] else super().choose(logits)


class FirstChoicesFirst(LyingLayer):
    def positions(self, ids: Tensor) -> Tensor:
        return super().positions(ids.T.contiguous()).T.contiguous()


class PaddingIsRouted(LyingLayer):
    def __call__(self, x: Tensor, valid: Tensor, replayed: Tensor | None = None) -> Tensor:
        return super().__call__(x, torch.ones_like(valid), replayed)


class MeanCountsPadding(LyingLayer):
    def mean_loss(self, per_token: Tensor, valid: Tensor) -> Tensor:
        return super().mean_loss(per_token * valid, torch.ones_like(valid))


class AlwaysLocalMean(LyingLayer):
    def mean_loss(self, per_token: Tensor, valid: Tensor) -> Tensor:
        return _mean_as("local", self, per_token, valid)


class AlwaysGlobalMean(LyingLayer):
    def mean_loss(self, per_token: Tensor, valid: Tensor) -> Tensor:
        return _mean_as("global", self, per_token, valid)


def _mean_as(kind: str, layer: ExpertLayer, per_token: Tensor, valid: Tensor) -> Tensor:
    asked = layer.plan
    layer.plan = dataclasses.replace(asked, normalisation=kind)
    loss = ExpertLayer.mean_loss(layer, per_token, valid)
    layer.plan = asked
    return loss


def __getattr__(name: str) -> Subject:
    """`forgets_x` is the subject of the class ForgetsX."""
    kind = globals().get("".join(word.capitalize() for word in name.split("_")))
    if name.startswith("_") or kind is None:
        raise AttributeError(f"{__name__} has no attribute {name}")
    return Subject(name=name, mechanisms={"expert": f"{__name__}:{kind.__name__}.as_subject"})
