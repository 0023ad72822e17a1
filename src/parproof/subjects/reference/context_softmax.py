"""Attention over a block of keys, and the online softmax that joins blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from parproof.subjects.context_protocol import ContextPlan, Partial


class Softmax:
    """Arithmetic of one attention call. float64 stays float64; anything less is accumulated in float32."""

    def __init__(self, plan: ContextPlan, head_width: int, dtype: torch.dtype) -> None:
        self.plan = plan
        self.scale = 1.0 / math.sqrt(head_width)
        self.dtype = dtype
        self.accumulator = torch.float64 if dtype == torch.float64 else torch.float32
        self._document = torch.repeat_interleave(
            torch.arange(len(plan.document_lengths) or 1),
            torch.tensor(plan.document_lengths or (plan.sequence_length,)),
        )

    def allowed(self, queries: Sequence[int], keys: Sequence[int]) -> Tensor:
        """[queries, keys] mask by global positions: same document and, if causal, not from the future."""
        q, k = torch.tensor(queries).unsqueeze(1), torch.tensor(keys).unsqueeze(0)
        mask = self._document[q] == self._document[k]
        return mask & (k <= q) if self.plan.causal else mask

    def spread(self, kv: Tensor, num_heads: int) -> Tensor:
        """Each key/value head serves h/g neighbouring query heads."""
        return kv.to(self.accumulator).repeat_interleave(num_heads // kv.shape[1], dim=1)

    def gather_heads(self, gradient: Tensor, num_kv_heads: int) -> Tensor:
        """Transpose of spread: sum over the query heads that share a key/value head."""
        b, h, s, d = gradient.shape
        return gradient.view(b, num_kv_heads, h // num_kv_heads, s, d).sum(2)

    def scores(self, q: Tensor, k: Tensor, allowed: Tensor) -> Tensor:
        """Masked, scaled scores [b, h, queries, keys]."""
        full = (q.to(self.accumulator) @ self.spread(k, q.shape[1]).transpose(-1, -2)) * self.scale
        return full.masked_fill(~allowed, -math.inf)

    def partial(self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Partial:
        """Softmax sums over one block; a query that may see none of it gets weight zero."""
        scores = self.scores(q, k, allowed)
        peak = scores.amax(-1)
        weights = torch.exp(scores - _finite(peak).unsqueeze(-1))
        return Partial(peak, weights.sum(-1), weights @ self.spread(v, q.shape[1]))

    @staticmethod
    def merge(a: Partial, b: Partial) -> Partial:
        """Bring both to the larger peak, then add."""
        peak = torch.maximum(a.peak, b.peak)
        left, right = torch.exp(a.peak - _finite(peak)), torch.exp(b.peak - _finite(peak))
        return Partial(
            peak,
            a.weight * left + b.weight * right,
            a.value * left.unsqueeze(-1) + b.value * right.unsqueeze(-1),
        )

    @staticmethod
    def finish(part: Partial) -> tuple[Tensor, Tensor]:
        """(attention, log of the softmax denominator)."""
        return part.value / part.weight.unsqueeze(-1), part.peak + part.weight.log()

    def block_gradients(
        self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, d_out: Tensor, allowed: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What one block of keys adds to (dq, dk, dv); dk and dv are per key/value head."""
        h, g = q.shape[1], k.shape[1]
        d_out = d_out.to(self.accumulator)
        shares = torch.exp(self.scores(q, k, allowed) - lse.unsqueeze(-1))
        d_shares = d_out @ self.spread(v, h).transpose(-1, -2)
        d_scores = shares * (d_shares - (d_out * out).sum(-1, keepdim=True)) * self.scale
        dq = d_scores @ self.spread(k, h)
        dk = d_scores.transpose(-1, -2) @ q.to(self.accumulator)
        dv = shares.transpose(-1, -2) @ d_out
        return dq, self.gather_heads(dk, g), self.gather_heads(dv, g)


def _finite(peak: Tensor) -> Tensor:
    """A row without any key has peak −inf; subtracting it would give NaN."""
    return peak.masked_fill(peak == -math.inf, 0.0)
