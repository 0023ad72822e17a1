"""Bounds for results that re-associate floating-point sums. Derived in docs/numerics.md."""

from __future__ import annotations

import math

SAFETY = 8.0
FLOOR = 0.01


def reassociation_bound(
    eps: float, *, norm: float, all_norm: float, ranks: int, length: int, safety: float = SAFETY
) -> float:
    """Allowed L2 error of one tensor when sums of `length` terms over `ranks` ranks are taken in another order.

    eps        machine epsilon of the dtype that sums and stores
    norm       L2 norm of the tensor in the oracle; all_norm: of all tensors judged together, so that a tensor
               whose true value is zero (cancellation) is judged absolutely
    """
    steps = math.sqrt(math.log2(max(ranks, 2)) + math.log2(max(length, 2)))
    return safety * eps * steps * (norm + FLOOR * all_norm)


def cancellation_bound(
    eps: float,
    *,
    absolute_norm: float,
    ranks: int,
    length: int,
    condition: float = 1.0,
    safety: float = SAFETY,
) -> float:
    """Allowed L2 error of one tensor, from the norm of the same sums over absolute values.

    Sharper to state than reassociation_bound where terms cancel on purpose, as in attention with peaked scores.
    condition   how much a relative error of the inputs grows on the way, e.g. 1 + largest score through exp
    """
    steps = math.sqrt(math.log2(max(ranks, 2)) + math.log2(max(length, 2)))
    return safety * eps * steps * condition * absolute_norm
