"""Attention with tensors that every rank holds whole: weights of q and k norms, a prefix of keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from parproof.errors import InvalidPlan
from parproof.subjects.context_protocol import NORM_EPS, SHARED, ContextPlan

if TYPE_CHECKING:
    from parproof.subjects.reference.context import ContextAttention


class SharingAttention:
    """Norms act on whole heads of local positions, before any exchange; gradients are summed over ranks at the end."""

    def __init__(
        self,
        attention: ContextAttention,
        shared: Mapping[str, Tensor],
        plan: ContextPlan,
        group: dist.ProcessGroup,
    ) -> None:
        check_shared(shared, plan)
        self.attention, self.plan, self.group = attention, plan, group
        self.shared = {name: t.detach().clone().requires_grad_() for name, t in shared.items()}

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See the protocol."""
        check_sizes(self.shared, q, k)
        if "q_weight" in self.shared:
            q, k = (self.norm(x, self.shared[name]) for x, name in ((q, "q_weight"), (k, "k_weight")))
        nothing = k[:, :, :0].detach()
        prefix = self.shared.get("prefix_k", nothing), self.shared.get("prefix_v", nothing)
        return self.attention.attend_after(*prefix, q, k, v, self.plan, self.group)

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMS norm of [b, h, s, d] over each head, or over all heads of a position, as the weight's size says."""
        over = (-1,) if weight.numel() == x.shape[-1] else (1, -1)
        scaled = x * torch.rsqrt(x.square().mean(over, keepdim=True) + NORM_EPS)
        return scaled * weight.view(-1, 1, x.shape[-1])

    def gradients(self) -> dict[str, Tensor]:
        """See the protocol."""
        wire = self.attention.wire(self.group)
        return {
            name: wire.sum_over_ranks(torch.zeros_like(t) if t.grad is None else t.grad)
            for name, t in self.shared.items()
        }


def check_shared(shared: Mapping[str, Tensor], plan: ContextPlan) -> None:
    """Refuse what has no meaning: half a pair, a name nobody knows, a prefix that belongs to no document."""
    where = "shared tensors of an attention layer"
    if unknown := sorted(set(shared) - set(SHARED)):
        raise InvalidPlan(
            f"shared tensor {unknown[0]!r}", expected=f"one of {', '.join(SHARED)}", where=where
        )
    for pair in (SHARED[:2], SHARED[2:]):
        if len(given := [name for name in pair if name in shared]) == 1:
            raise InvalidPlan(f"{given[0]} alone", expected=" and ".join(pair), where=where)
    if "prefix_k" in shared and plan.document_lengths:
        raise InvalidPlan(
            f"a shared prefix beside {len(plan.document_lengths)} documents",
            expected="one document",
            where=where,
            next_step="put the prefix into each document that may see it",
        )


def check_sizes(shared: Mapping[str, Tensor], q: Tensor, k: Tensor) -> None:
    """Weights of one head or of all; a prefix with the heads of k. Anything else would be broadcast in silence."""
    for name, x in (("q_weight", q), ("k_weight", k)):
        sizes = x.shape[3], x.shape[1] * x.shape[3]
        if name in shared and shared[name].numel() not in sizes:
            raise InvalidPlan(
                f"{name} of {shared[name].numel()} elements", expected=f"{sizes[0]} or {sizes[1]}"
            )
    for name in ("prefix_k", "prefix_v"):
        if name in shared and (*shared[name].shape[:2], shared[name].shape[3]) != (*k.shape[:2], k.shape[3]):
            raise InvalidPlan(
                f"{name} of shape {list(shared[name].shape)}",
                expected=f"[{k.shape[0]}, {k.shape[1]}, n, {k.shape[3]}], the heads of k",
            )
