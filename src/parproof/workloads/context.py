"""Queries, keys and values that encode head and position; scores are exact, so large ones cost no accuracy."""

from __future__ import annotations

import torch
from torch import Tensor

from parproof.workloads.context_plans import LENGTH, Sharing

BATCH, HEAD_WIDTH = 2, 4
Whole = tuple[Tensor, Tensor, Tensor, Tensor]


def tensors(*, heads: int, kv_heads: int, length: int, dtype: torch.dtype, magnitude: int = 1) -> Whole:
    """(q, k, v, d_out) for a whole sequence.

    Small integers times `magnitude`: q·k and its product with the scale 1/2 (width 4) are exact in every dtype
    used here, and no row, head or position equals another.
    """
    generator = torch.Generator().manual_seed(7)

    def integers(num_heads: int, limit: int) -> Tensor:
        shape = (BATCH, num_heads, length, HEAD_WIDTH)
        return torch.randint(-limit, limit + 1, shape, generator=generator).to(dtype)

    q = integers(heads, 2) * magnitude
    return q, integers(kv_heads, 2), integers(kv_heads, 8), integers(heads, 3)


def sharing(kind: Sharing, *, heads: int, kv_heads: int) -> tuple[Whole, dict[str, Tensor]]:
    """((q, k, v, d_out), what all ranks hold), float64. Odd integers: a norm of zero would multiply by 1/sqrt(eps).

    Padding holds values like any other, as embeddings of a padding token do, but nothing depends on it: d_out is 0.
    """
    generator = torch.Generator().manual_seed(11)

    def odd(*shape: int) -> Tensor:
        return torch.randint(-2, 2, shape, generator=generator).double() * 2 + 1

    q, k, v, d_out = (odd(BATCH, n, LENGTH, HEAD_WIDTH) for n in (heads, kv_heads, kv_heads, heads))
    d_out[:, :, LENGTH - kind.padding :] = 0.0
    shared: dict[str, Tensor] = {}
    if kind.norm:
        for name, together in (("q_weight", heads), ("k_weight", kv_heads)):
            shared[name] = odd(HEAD_WIDTH * (together if kind.norm == "all" else 1)) / 2
    if kind.prefix:
        prefix = (BATCH, kv_heads, kind.prefix, HEAD_WIDTH)
        shared |= {"prefix_k": odd(*prefix), "prefix_v": odd(*prefix) * 2}
    return (q, k, v, d_out), shared
