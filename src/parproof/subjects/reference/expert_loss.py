"""The mean of per-token losses over data ranks, and what each token's share of it is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from parproof.subjects.expert_protocol import Axes, ExpertPlan
from parproof.subjects.reference import expert_wire as wire


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, per_token: Tensor, share: Tensor, mean: Tensor) -> Tensor:
        ctx.save_for_backward(share)
        return mean.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (share,) = ctx.saved_tensors
        return grads[0] * share, None, None


class MeanLoss:
    """The part of a layer that knows how many tokens there are."""

    plan: ExpertPlan
    axes: Axes

    def mean_loss(self, per_token: Tensor, valid: Tensor) -> Tensor:
        """One all_reduce of two numbers over the data ranks: a sum and what it is divided by."""
        total = (per_token.detach() * valid).sum()
        count = valid.sum().to(per_token.dtype)
        if self.plan.normalisation == "local":
            total, divisor = total / count.clamp(min=1), torch.ones_like(count)
        else:
            divisor = count
        sums = wire.sum_over(torch.stack([total, divisor]), self.axes.data)
        share = 1 / sums[1].clamp(min=1)
        mean = sums[0] * share
        if self.plan.normalisation == "local":
            share = share / count.clamp(min=1)
        return _Mean.apply(per_token, share * valid, mean)  # type: ignore[no-untyped-call,no-any-return]
