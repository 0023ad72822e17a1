"""Interface of the mechanism `replica`: which serving replica takes which request, and what that leads to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

POLICIES = ("round_robin", "queue_aware", "locality_aware", "power_of_two")
REASONS = (
    "round_robin",
    "shortest_queue",
    "sticky_session",
    "prefix_locality",
    "queue_fallback",
    "two_choices",
)


@dataclass(frozen=True)
class Request:
    """One request; times in milliseconds on one clock. Served in the order (arrival_ms, request_id)."""

    request_id: int
    arrival_ms: float
    service_ms: float
    prefix_key: str = ""
    session_id: str = ""


@dataclass(frozen=True)
class ReplicaState:
    """A replica before the first request: when it is free, and the prefixes it holds in its cache."""

    replica_id: int
    available_at_ms: float = 0.0
    cached_prefixes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RoutingRules:
    """slack_ms: how much longer than the shortest queue a request may wait for locality (inclusive).
    hit_factor: service time on a cached prefix, as a share of the full one.
    seed: of random choices: the same seed gives the same schedule, another seed another one."""

    slack_ms: float = 5.0
    hit_factor: float = 0.7
    seed: int = 0


@dataclass(frozen=True)
class Served:
    """How one request went. Times in ms; served_ms is the service time after a possible cache hit."""

    request_id: int
    replica_id: int
    reason: str
    start_ms: float
    finish_ms: float
    hit: bool


@dataclass(frozen=True)
class RoutingMetrics:
    """Means, nearest-rank percentiles, and load by work (not by count).

    max_over_mean_work   busiest replica's service time over the mean of all replicas
    makespan_ms          last finish less first arrival
    """

    mean_wait_ms: float
    p95_wait_ms: float
    p99_wait_ms: float
    throughput_per_s: float
    hit_rate: float
    max_over_mean_work: float
    makespan_ms: float


class ReplicaRouting(Protocol):
    """What a subject implements."""

    def simulate(
        self, requests: Sequence[Request], replicas: Sequence[ReplicaState], policy: str, rules: RoutingRules
    ) -> list[Served]:
        """Serve every request once, in order (arrival, id). Inputs are not changed.

        round_robin      in turn
        queue_aware      the shortest wait; the lower position breaks ties
        locality_aware   the last one of the session, else the shortest wait among those that hold the prefix, each
                         within the slack; else the shortest wait
        power_of_two     two different replicas are drawn, every pair as likely and whatever was drawn before; the one
                         with the shorter wait serves, the lower position breaks ties
        Errors   InvalidPlan for no replicas, an unknown policy, negative times, or two requests of one id
        """

    def metrics(
        self, requests: Sequence[Request], replicas: Sequence[ReplicaState], served: Sequence[Served]
    ) -> RoutingMetrics:
        """The figures of a simulation. Errors: InvalidPlan when nothing was served."""
