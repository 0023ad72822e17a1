"""Inputs of context parallelism with the oracle's answers: the same for every variant, layout, world and subject."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from parproof import oracles, workloads
from parproof.checks.context import Answer
from parproof.workloads.context_plans import LENGTH, SHARINGS

if TYPE_CHECKING:
    from torch import Tensor

Whole = tuple["Tensor", "Tensor", "Tensor", "Tensor"]
"""q, k, v and the gradient of the output, of the whole sequence."""


@functools.cache
def plain(
    heads: int,
    kv_heads: int,
    length: int,
    dtype: str,
    magnitude: int,
    causal: bool,
    documents: tuple[int, ...],
) -> tuple[Whole, Answer]:
    """(whole sequence, the oracle's answer)."""
    import torch

    whole = workloads.context.tensors(
        heads=heads, kv_heads=kv_heads, length=length, dtype=getattr(torch, dtype), magnitude=magnitude
    )
    exact, absolute = oracles.context.dense(*whole, causal=causal, document_lengths=documents)
    # exp turns a relative error of its argument into one that is larger by the argument.
    return whole, (exact, absolute, 1.0 + oracles.context.largest_score(whole[0], whole[1]))


@functools.cache
def shared(kind: str) -> tuple[Whole, dict[str, Tensor], Answer]:
    """(whole sequence, what all ranks hold, the oracle's answer for the positions that are no padding)."""
    sharing = SHARINGS[kind]
    whole, held = workloads.context.sharing(sharing, heads=8, kv_heads=sharing.kv_heads)
    q, k, v, d_out = (t[:, :, : LENGTH - sharing.padding] for t in whole)
    return whole, held, oracles.context_sharing.dense(q, k, v, d_out, held, causal=sharing.causal)
