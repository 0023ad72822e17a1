"""Routings of the teaching page and of its edges, as plain lists. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from parproof.subjects.expert_protocol import ExpertPlan


@dataclass(frozen=True)
class Routed:
    """routes[source][token] = expert ids; expected: figures known beforehand."""

    routes: tuple[tuple[tuple[int, ...], ...], ...]
    owners: tuple[int, ...]
    factor: float | None
    expected: dict[str, Any]
    verdict: str
    width: int = 4
    element_bytes: int = 2

    def plan(self) -> ExpertPlan:
        """A plan of this routing."""
        return ExpertPlan(len(self.owners), 1, capacity_factor=self.factor)

    def sizes(self) -> dict[str, int]:
        """What bytes depend on."""
        return {"width": self.width, "element_bytes": self.element_bytes}


def _balanced_figures() -> dict[str, Any]:
    return {"loads": (2, 2, 2), "capacity": 2, "overflow": 0, "max_over_mean": 1.0, "logical_bytes": 48}


PAGE = {
    "balanced": Routed((((0, 1), (1, 2), (0, 2)),), (0, 0, 0), 1.0, _balanced_figures(), "accept"),
    "one_too_many": Routed(
        (((0,), (0,), (0,), (1,)),),
        (0, 0),
        1.0,
        {"loads": (3, 1), "capacity": 2, "overflow": 1, "effective_tokens": 3, "max_over_mean": 1.5},
        "tune",
    ),
    "ten_to_one": Routed(
        (((0,),) * 10 + ((1,),),),
        (0, 0),
        1.0,
        {"capacity": 6, "overflow": 4, "effective_tokens": 7, "max_over_mean": 1.818},
        "reject",
    ),
    "nothing": Routed(
        ((),), (0, 0), 1.0, {"capacity": 0, "overflow": 0, "max_over_mean": 0.0, "logical_bytes": 0}, "reject"
    ),
    "locality": Routed(
        (((0,), (0,), (1,)), ((1,),)),
        (0, 1),
        None,
        {
            "local_hit_ratio": 0.75,
            "cross_rank_ratio": 0.25,
            "logical_bytes": 64,
            "network_bytes": 16,
            "round_trip_bytes": 32,
        },
        "accept",
        width=8,
    ),
    "uniform_over_two_ranks": Routed(
        (((0,), (1,)),) * 2,
        (0, 1),
        1.0,
        {"loads": (2, 2), "cross_rank_ratio": 0.5, "max_over_mean": 1.0, "sent": ((1, 1), (1, 1))},
        "accept",
    ),
    "uniform_over_eight_rails": Routed(
        (tuple((e,) for e in range(8)),) * 8,
        tuple(range(8)),
        None,
        {"overflow": 0, "cross_rank_ratio": 0.875, "max_over_mean": 1.0},
        "tune",
    ),
    "three_quarters_to_one_rank": Routed(
        (((0,),) * 192 + ((1,),) * 64,) * 2,
        (0, 1),
        None,
        {"loads": (384, 128), "max_over_mean": 1.5, "sent": ((192, 64), (192, 64)), "cross_rank_ratio": 0.5},
        "tune",
    ),
    "padding": Routed(
        (((0,), (), (1,)), ((), ())),
        (0, 1),
        1.0,
        {"loads": (1, 1), "capacity": 1, "overflow": 0, "effective_tokens": 2, "logical_bytes": 16},
        "accept",
    ),
    "decimal_factor": Routed(
        (((0,),) * 250, ((1,),) * 250),
        (0, 1, 0, 1, 0, 1, 0, 1, 0, 1),
        1.1,
        {"capacity": 55, "overflow": 390, "effective_tokens": 110, "sent": ((55, 0), (0, 55))},
        "reject",
    ),
    "dropped_rows_stay": Routed(
        (((1,), (1,), (0,)), ((1,),)),
        (0, 1),
        0.5,
        {"capacity": 1, "overflow": 2, "sent": ((1, 1), (0, 0)), "logical_bytes": 32, "network_bytes": 8},
        "reject",
    ),
}

# overflow, max over mean, cross-rank ratio → verdict: each limit is inclusive
LIMITS = (
    (0, 1.2, 0.5, "accept"),
    (0, 1.201, 0.5, "tune"),
    (0, 1.2, 0.501, "tune"),
    (1, 1.2, 0.5, "tune"),
    (1, 1.8, 0.9, "tune"),
    (2, 1.0, 0.0, "reject"),
    (1, 1.801, 0.9, "reject"),
    (1, 1.8, 0.901, "reject"),
    (0, 1.0, 0.0, "accept"),
)

# what → (routes, owners of two experts, text of the refusal)
IMPOSSIBLE = {
    "id_too_large": ([[[0], [2]]], [0, 0], "id 2"),
    "negative_id": ([[[-1]]], [0, 0], "id -1"),
    "missing_owner": ([[[0]]], [0], "1 owners for 2"),
    "owner_that_is_no_rank": ([[[0]]], [0, 1], "expert 1 belongs to rank 1"),
}
