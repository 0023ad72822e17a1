"""Queries, keys and values that encode head and position; scores are exact, so large ones cost no accuracy."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from parproof.subjects.context_protocol import ContextPlan
from parproof.workloads.context_plans import LENGTH, Sharing

BATCH, HEAD_WIDTH = 2, 4
Whole = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Turn:
    """What an instance is given each time its turn comes round."""

    plan: ContextPlan
    whole: Whole


def tensors(
    *, heads: int, kv_heads: int, length: int, dtype: torch.dtype, magnitude: int = 1, series: int = 0
) -> Whole:
    """(q, k, v, d_out) for a whole sequence; every series has values of its own.

    Small integers times `magnitude`: q·k and its product with the scale 1/2 (width 4) are exact in every dtype
    used here. Within a tensor no vector of a position and head equals another one, and none is zero.
    """
    generator = torch.Generator().manual_seed(7 + series)

    def integers(num_heads: int, limit: int) -> Tensor:
        shape, digits = (BATCH, num_heads, length, HEAD_WIDTH), 2 * limit + 1
        numbers = torch.randperm(digits**HEAD_WIDTH, generator=generator)
        # The number in the middle is the vector of zeros.
        numbers = numbers[numbers != digits**HEAD_WIDTH // 2][: BATCH * num_heads * length]
        places = digits ** torch.arange(HEAD_WIDTH)
        return (numbers.unsqueeze(1) // places % digits - limit).view(shape).to(dtype)

    q = integers(heads, 2) * magnitude
    return q, integers(kv_heads, 2), integers(kv_heads, 8), integers(heads, 3)


def _odd(generator: torch.Generator, *shape: int) -> Tensor:
    """Odd integers of at most 3: a norm of zero would multiply by 1/sqrt(eps)."""
    return torch.randint(-2, 2, shape, generator=generator).double() * 2 + 1


def sharing_call(kind: Sharing, *, heads: int, kv_heads: int, series: int = 0) -> Whole:
    """(q, k, v, d_out) of one call of a layer with shared tensors, float64; every series has values of its own.

    Padding holds values like any other, as embeddings of a padding token do, but nothing depends on it: d_out is 0.
    """
    generator = torch.Generator().manual_seed(11 + series)
    q, k, v, d_out = (
        _odd(generator, BATCH, n, LENGTH, HEAD_WIDTH) for n in (heads, kv_heads, kv_heads, heads)
    )
    d_out[:, :, LENGTH - kind.padding :] = 0.0
    return q, k, v, d_out


def sharing(kind: Sharing, *, heads: int, kv_heads: int, series: int = 0) -> dict[str, Tensor]:
    """What all ranks of a group hold, float64; every series has values of its own."""
    generator = torch.Generator().manual_seed(101 + series)

    def odd(*shape: int) -> Tensor:
        return _odd(generator, *shape)

    shared: dict[str, Tensor] = {}
    if kind.norm:
        for name, together in (("q_weight", heads), ("k_weight", kv_heads)):
            shared[name] = odd(HEAD_WIDTH * (together if kind.norm == "all" else 1)) / 2
    if kind.prefix:
        prefix = (BATCH, kv_heads, kind.prefix, HEAD_WIDTH)
        shared |= {"prefix_k": odd(*prefix), "prefix_v": odd(*prefix) * 2}
    return shared
