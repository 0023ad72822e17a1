"""Dense attention behind RMS norms of q and k, or behind a prefix of keys and values, with all gradients written out."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from parproof.oracles import context

NORM_EPS = 2.0**-20
Sums = dict[str, Tensor]


def dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    d_out: Tensor,
    shared: Mapping[str, Tensor],
    *,
    causal: bool,
    document_lengths: tuple[int, ...] = (),
) -> tuple[Sums, Sums, float]:
    """(results, the same sums over absolute values, condition of the scores), all float64.

    Names    out, dq, dk, dv and, of what is shared: q_weight, k_weight, prefix_k, prefix_v
    Method   one position at a time for the norms; a prefix is keys in front that every query sees
    """
    q, k, v, d_out = (t.detach().double() for t in (q, k, v, d_out))
    weights = {"dq": shared.get("q_weight"), "dk": shared.get("k_weight")}
    normed_q, normed_k = (
        x if weight is None else norm(x, weight) for x, weight in ((q, weights["dq"]), (k, weights["dk"]))
    )
    nothing = k[:, :, :0]
    before_k, before_v = (shared.get(name, nothing).detach().double() for name in ("prefix_k", "prefix_v"))
    length = before_k.shape[2]
    all_k, all_v = torch.cat([before_k, normed_k], 2), torch.cat([before_v, v], 2)
    answers = context.dense(
        normed_q, all_k, all_v, d_out, causal=causal, document_lengths=document_lengths, prefix=length
    )
    for sums, is_absolute in zip(answers, (False, True), strict=True):
        if length:
            for name, gradient in (("prefix_k", "dk"), ("prefix_v", "dv")):
                sums[name], sums[gradient] = sums[gradient][:, :, :length], sums[gradient][:, :, length:]
        for gradient, x, name in (("dq", q, "q_weight"), ("dk", k, "k_weight")):
            if (weight := weights[gradient]) is not None:
                sums[gradient], sums[name] = norm_gradients(x, weight, sums[gradient], is_absolute)
    # Products of absolute values: normed scores are rounded, so what cancels in them counts too.
    return *answers, 1.0 + context.largest_score(normed_q.abs(), all_k.abs())


def norm(x: Tensor, weight: Tensor) -> Tensor:
    """RMS norm of [b, h, S, d], one position at a time; a weight of d elements is for each head, of h·d for all."""
    made = torch.zeros_like(x)
    for i in range(x.shape[2]):
        rows = _rows(x[:, :, i], weight)
        unit = rows / _size(rows)
        made[:, :, i] = (unit * weight.double()).view_as(made[:, :, i])
    return made


def norm_gradients(x: Tensor, weight: Tensor, d_normed: Tensor, is_absolute: bool) -> tuple[Tensor, Tensor]:
    """(dx, d weight) for the gradient of the normed x; is_absolute: the same sums over absolute values."""
    dx, d_weight = torch.zeros_like(x), torch.zeros_like(weight, dtype=torch.float64)
    scale = weight.double().abs() if is_absolute else weight.double()
    for i in range(x.shape[2]):
        rows, back = _rows(x[:, :, i], weight), _rows(d_normed[:, :, i], weight)
        unit = rows.abs() / _size(rows) if is_absolute else rows / _size(rows)
        d_unit = back * scale
        along = unit * torch.einsum("rn,rn->r", d_unit, unit).unsqueeze(1) / rows.shape[1]
        dx[:, :, i] = ((d_unit + along if is_absolute else d_unit - along) / _size(rows)).view_as(dx[:, :, i])
        d_weight += torch.einsum("rn,rn->n", back, unit)
    return dx, d_weight


def _rows(at_position: Tensor, weight: Tensor) -> Tensor:
    """[b, h, d] → [rows, n]: the values that are normed together."""
    return at_position.reshape(-1, weight.numel())


def _size(rows: Tensor) -> Tensor:
    """sqrt(mean(x²) + eps) of each row."""
    return torch.sqrt(torch.einsum("rn,rn->r", rows, rows).unsqueeze(1) / rows.shape[1] + NORM_EPS)
