"""Dense attention in one process, in float64, written out with its gradients; and the positions of each layout."""

from __future__ import annotations

import torch
from torch import Tensor

Sums = dict[str, Tensor]


NAMES = ("out", "dq", "dk", "dv")


def dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    d_out: Tensor,
    *,
    causal: bool,
    document_lengths: tuple[int, ...],
    prefix: int = 0,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(output and gradients of sum(output · d_out); the same sums over absolute values), all float64.

    Shapes   q, d_out [b, h, S, d]; k, v [b, g, prefix + S, d]; all queries see the first `prefix` keys
    Method   query by query: each query sees the list of keys it may see and no other, so there is no mask, no −inf
             and no block to merge
    The sums over absolute values bound what rounding can do where terms cancel (docs/numerics.md).
    """
    q, k, v, d_out = (t.detach().double() for t in (q, k, v, d_out))
    share = q.shape[1] // k.shape[1]
    head_of = torch.arange(q.shape[1]) // share
    wide = q, k[:, head_of], v[:, head_of], d_out
    like = dict(zip(NAMES, (q, q, wide[1], wide[1]), strict=True))
    exact = {name: torch.zeros_like(t) for name, t in like.items()}
    absolute = {name: torch.zeros_like(t) for name, t in like.items()}
    ends = torch.tensor(document_lengths or (q.shape[2],)).cumsum(0).tolist()
    for first, end in zip([0, *ends[:-1]], ends, strict=True):
        for i in range(first, end):
            seen = slice(first, prefix + (i + 1 if causal else end))
            _one_query(*wide, exact, absolute, i, seen)
    for sums in (exact, absolute):
        for name in ("dk", "dv"):
            sums[name] = torch.zeros_like(k).index_add_(1, head_of, sums[name])
    return exact, absolute


def _one_query(
    q: Tensor, k: Tensor, v: Tensor, d_out: Tensor, exact: Sums, absolute: Sums, i: int, seen: slice
) -> None:
    scale = q.shape[-1] ** -0.5
    shares = torch.softmax(torch.einsum("bhd,bhnd->bhn", q[:, :, i], k[:, :, seen]) * scale, dim=-1)
    for sums, sign, of in ((exact, -1.0, torch.clone), (absolute, 1.0, torch.abs)):
        query, keys, values, back = of(q[:, :, i]), of(k[:, :, seen]), of(v[:, :, seen]), of(d_out[:, :, i])
        sums["out"][:, :, i] = torch.einsum("bhn,bhnd->bhd", shares, values)
        d_shares = torch.einsum("bhd,bhnd->bhn", back, values)
        d_scores = shares * (d_shares + sign * (shares * d_shares).sum(-1, keepdim=True)) * scale
        sums["dq"][:, :, i] = torch.einsum("bhn,bhnd->bhd", d_scores, keys)
        sums["dk"][:, :, seen] += torch.einsum("bhn,bhd->bhnd", d_scores, query)
        sums["dv"][:, :, seen] += torch.einsum("bhn,bhd->bhnd", shares, back)


def largest_score(q: Tensor, k: Tensor) -> float:
    """Largest |q·k| / sqrt(d) that any mask could leave visible."""
    share = q.shape[1] // k.shape[1]
    wide = k.double()[:, torch.arange(q.shape[1]) // share]
    return float((torch.einsum("bhid,bhjd->bhij", q.double(), wide) * q.shape[-1] ** -0.5).abs().max())


def holder(
    position: int, *, balance: str, length: int, world_size: int, document_lengths: tuple[int, ...] = ()
) -> int:
    """Which rank holds a global position, by the layout's definition."""
    if balance == "document_zigzag":
        length, position = document_of(position, document_lengths or (length,))
    if balance == "striped":
        return position % world_size
    if balance == "contiguous":
        return position * world_size // length
    block = position * 2 * world_size // length
    return min(block, 2 * world_size - 1 - block)


def document_of(position: int, document_lengths: tuple[int, ...]) -> tuple[int, int]:
    """(length of the position's document, place in it)."""
    for length in document_lengths:
        if position < length:
            return length, position
        position -= length
    raise IndexError(f"no document holds position {position} behind the last")


def visible_pairs(
    positions: list[int], *, causal: bool, length: int, document_lengths: tuple[int, ...] = ()
) -> int:
    """(query, key) pairs a rank has to compute."""
    seen = [document_of(i, document_lengths or (length,)) for i in positions]
    return sum(place + 1 if causal else whole for whole, place in seen)
