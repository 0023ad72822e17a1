"""Mutants of PAR-CONTEXT-RING around tensors that every rank holds whole: norm weights, a prefix (see the catalogue)."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from parproof.errors import InvalidPlan
from parproof.subjects.context_protocol import NORM_EPS, ContextPlan
from parproof.subjects.mutants.context_lies import exchange, layer, subjects
from parproof.subjects.reference.context import ContextAttention
from parproof.subjects.reference.context_sharing import SharingAttention
from parproof.subjects.reference.context_wire import ContextWire


class OwnPositionsOnly(ContextWire):
    def sum_over_ranks(self, x: Tensor) -> Tensor:
        super().sum_over_ranks(x)
        return x


class MeanOverRanks(ContextWire):
    def sum_over_ranks(self, x: Tensor) -> Tensor:
        return super().sum_over_ranks(x) / self.p


class SumsOverTheWorld(ContextWire):
    def sum_over_ranks(self, x: Tensor) -> Tensor:
        self.group = dist.group.WORLD  # type: ignore[assignment]
        return super().sum_over_ranks(x)


class GathersToSum(ContextWire):
    def sum_over_ranks(self, x: Tensor) -> Tensor:
        parts = [torch.empty_like(x) for _ in range(self.p)]
        dist.all_gather(parts, x.contiguous(), group=self.group)
        return torch.stack(parts).sum(0)


class JoinsEachRound(ContextWire):
    def join(self, prefix: Tensor, keys: Tensor, step: int) -> Tensor:
        return super().join(prefix, keys, 0)


class ExchangesThePrefix(ContextWire):
    def join(self, prefix: Tensor, keys: Tensor, step: int) -> Tensor:
        return keys if step else torch.cat([prefix] * self.p + [keys], dim=2)


class NormsHeadShards(SharingAttention):
    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        if weight.numel() == x.shape[-1]:
            return super().norm(x, weight)
        p = self.group.size()
        parts = zip(x.chunk(p, dim=1), weight.chunk(p), strict=True)
        return torch.cat([super(NormsHeadShards, self).norm(*part) for part in parts], dim=1)


class _EarlyBackward(torch.autograd.Function):
    """The norm, whose weight goes backward on what has not been through the exchange yet."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, wire: ContextWire) -> Tensor:
        over = (-1,) if weight.numel() == x.shape[-1] else (1, -1)
        rate = torch.rsqrt(x.square().mean(over, keepdim=True) + NORM_EPS)
        ctx.save_for_backward(x * rate, rate, weight.view(-1, 1, x.shape[-1]))
        ctx.rest = wire, over, weight.numel()
        return x * rate * weight.view(-1, 1, x.shape[-1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        unit, rate, weight = ctx.saved_tensors
        wire, over, size = ctx.rest
        stale = wire.to_heads(gradients[0]).reshape(gradients[0].shape)
        d_unit = gradients[0] * weight
        dx = (d_unit - unit * (d_unit * unit).mean(over, keepdim=True)) * rate
        return dx, (stale * unit).sum((0, 2)).view(-1, size).sum(0), None


class NormsBackwardEarly(SharingAttention):
    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        if self.plan.variant != "ulysses" or weight is not self.shared["k_weight"]:
            return super().norm(x, weight)
        wire = self.attention.wire(self.group)
        made: Tensor = _EarlyBackward.apply(x, weight, wire)  # type: ignore[no-untyped-call]
        return made


class TakesWhatItGets(ContextAttention):
    def sharing(self, shared: Mapping[str, Tensor], plan: ContextPlan, group: dist.ProcessGroup) -> Any:
        try:
            return super().sharing(shared, plan, group)
        except InvalidPlan:
            return lambda q, k, v: self.attend(q, k, v, plan, group)


LIES = SimpleNamespace(
    shared_gradient_of_own_positions=exchange(OwnPositionsOnly),
    shared_gradient_is_a_mean=exchange(MeanOverRanks),
    shared_gradient_over_the_world=exchange(SumsOverTheWorld),
    gathers_to_sum=exchange(GathersToSum),
    prefix_counts_each_round=exchange(JoinsEachRound),
    prefix_is_exchanged=exchange(ExchangesThePrefix),
    norms_head_shards=layer(NormsHeadShards),
    norms_backward_early=layer(NormsBackwardEarly),
    takes_any_sharing=TakesWhatItGets,
)

# One subject a lie, by the names of the catalogue.
globals().update(subjects(__name__, LIES))
