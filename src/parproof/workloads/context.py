"""Queries, keys and values that encode head and position; scores are exact, so large ones cost no accuracy."""

from __future__ import annotations

import torch
from torch import Tensor

BATCH, HEAD_WIDTH = 2, 4


def tensors(
    *, heads: int, kv_heads: int, length: int, dtype: torch.dtype, magnitude: int = 1
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
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
