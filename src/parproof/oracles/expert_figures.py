"""Load and traffic of a routing, counted route by route."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any


def figures(
    routes: Sequence[Sequence[Sequence[int]]],
    owners: Sequence[int],
    factor: float | None,
    *,
    width: int,
    element_bytes: int,
) -> dict[str, Any]:
    """Every figure of an account, by name. routes[source][token]: expert ids; sources are served in order."""
    walk = [(source, expert) for source, tokens in enumerate(routes) for token in tokens for expert in token]
    places = len(walk)
    if factor is not None:
        exact = Decimal(str(factor)) * len(walk) / len(owners)
        places = int(exact.to_integral_value(rounding=ROUND_CEILING))
    loads = [0] * len(owners)
    sent = [[0] * len(routes) for _ in routes]
    local = 0
    for source, expert in walk:
        loads[expert] += 1
        local += owners[expert] == source
        if loads[expert] <= places:
            sent[source][owners[expert]] += 1
    effective = sum(map(sum, sent))
    leaving = effective - sum(sent[rank][rank] for rank in range(len(routes)))
    num = len(walk)
    return {
        "loads": tuple(loads),
        "capacity": places,
        "overflow": num - effective,
        "effective_tokens": effective,
        "max_over_mean": round(max(loads) / (num / len(owners)), 3) if num else 0.0,
        "cross_rank_ratio": (num - local) / num if num else 0.0,
        "local_hit_ratio": local / num if num else 0.0,
        "sent": tuple(tuple(row) for row in sent),
        "logical_bytes": num * width * element_bytes,
        "network_bytes": leaving * width * element_bytes,
        "round_trip_bytes": 2 * leaving * width * element_bytes,
    }
