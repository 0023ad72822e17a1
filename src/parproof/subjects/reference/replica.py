"""Replica routing from first principles: one decision a request, in order of arrival."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from parproof.errors import InvalidPlan
from parproof.subjects.replica_protocol import (
    POLICIES,
    ReplicaState,
    Request,
    RoutingMetrics,
    RoutingRules,
    Served,
)


@dataclass
class _Replica:
    """The router's own, changing view of one replica."""

    index: int
    replica_id: int
    available_ms: float
    prefixes: set[str]

    def wait_ms(self, request: Request) -> float:
        return max(0.0, self.available_ms - request.arrival_ms)


@dataclass
class _Fleet:
    """State that lasts over requests: replicas, who owns which session, whose turn it is."""

    replicas: list[_Replica]
    rules: RoutingRules
    owner_of_session: dict[str, int] = field(default_factory=dict)
    turn: int = 0
    random: random.Random = field(default_factory=random.Random)


class ReplicaRouting:
    """The four policies; each step is a method, so that a variant can change exactly one."""

    def simulate(
        self, requests: Sequence[Request], replicas: Sequence[ReplicaState], policy: str, rules: RoutingRules
    ) -> list[Served]:
        """See the protocol."""
        _check(requests, replicas, policy)
        fleet = _Fleet(
            [
                _Replica(i, r.replica_id, r.available_at_ms, set(r.cached_prefixes))
                for i, r in enumerate(replicas)
            ],
            rules,
            random=random.Random(rules.seed),
        )
        return [self.serve(fleet, request, policy) for request in self.order(requests)]

    def order(self, requests: Sequence[Request]) -> list[Request]:
        """By arrival; the id breaks ties."""
        return sorted(requests, key=lambda r: (r.arrival_ms, r.request_id))

    def serve(self, fleet: _Fleet, request: Request, policy: str) -> Served:
        """Choose a replica, occupy it, and remember what it now holds."""
        index, reason = getattr(self, policy)(fleet, request)
        replica = fleet.replicas[index]
        hit = self.is_hit(replica, request)
        start = max(request.arrival_ms, replica.available_ms)
        finish = start + self.service_ms(fleet, request, hit)
        replica.available_ms = finish
        self.remember(fleet, replica, request)
        return Served(request.request_id, replica.replica_id, reason, start, finish, hit)

    def is_hit(self, replica: _Replica, request: Request) -> bool:
        """A request without a prefix never hits."""
        return bool(request.prefix_key) and request.prefix_key in replica.prefixes

    def service_ms(self, fleet: _Fleet, request: Request, hit: bool) -> float:
        """A cached prefix shortens the service."""
        return request.service_ms * (fleet.rules.hit_factor if hit else 1.0)

    def remember(self, fleet: _Fleet, replica: _Replica, request: Request) -> None:
        """The replica now holds the prefix and owns the session."""
        if request.prefix_key:
            replica.prefixes.add(request.prefix_key)
        if request.session_id:
            fleet.owner_of_session[request.session_id] = replica.index

    # -- policies: (replica index, reason) ------------------------------------------------------------------

    def round_robin(self, fleet: _Fleet, request: Request) -> tuple[int, str]:
        """In turn, whatever the load."""
        index = fleet.turn % len(fleet.replicas)
        fleet.turn += 1
        return index, "round_robin"

    def queue_aware(self, fleet: _Fleet, request: Request) -> tuple[int, str]:
        """The shortest wait; the lower index breaks ties."""
        return self.shortest(fleet, request, fleet.replicas), "shortest_queue"

    def locality_aware(self, fleet: _Fleet, request: Request) -> tuple[int, str]:
        """The session's owner, else a replica that holds the prefix, each only within the slack; else the queue."""
        fallback = self.shortest(fleet, request, fleet.replicas)
        limit = fleet.replicas[fallback].wait_ms(request) + fleet.rules.slack_ms
        owner = fleet.owner_of_session.get(request.session_id)
        if owner is not None and fleet.replicas[owner].wait_ms(request) <= limit:
            return owner, "sticky_session"
        holders = [r for r in fleet.replicas if self.is_hit(r, request) and r.wait_ms(request) <= limit]
        if holders:
            return self.shortest(fleet, request, holders), "prefix_locality"
        return fallback, "queue_fallback"

    def power_of_two(self, fleet: _Fleet, request: Request) -> tuple[int, str]:
        """Two different replicas at random, the shorter wait of the two."""
        pool = fleet.replicas
        pair = fleet.random.sample(pool, 2) if len(pool) > 1 else pool
        return self.shortest(fleet, request, pair), "two_choices"

    def shortest(self, fleet: _Fleet, request: Request, among: Sequence[_Replica]) -> int:
        """Least wait, then lowest index."""
        return min(among, key=lambda r: (r.wait_ms(request), r.index)).index

    # -- figures ---------------------------------------------------------------------------------------------

    def metrics(
        self, requests: Sequence[Request], replicas: Sequence[ReplicaState], served: Sequence[Served]
    ) -> RoutingMetrics:
        """See the protocol."""
        if not served:
            raise InvalidPlan("no request was served", expected="at least one", where="replica metrics")
        arrival = {request.request_id: request.arrival_ms for request in requests}
        waits = sorted(s.start_ms - arrival[s.request_id] for s in served)
        work = {replica.replica_id: 0.0 for replica in replicas}
        for s in served:
            work[s.replica_id] += s.finish_ms - s.start_ms
        span = max(s.finish_ms for s in served) - min(arrival.values())
        mean_work = sum(work.values()) / len(work)
        return RoutingMetrics(
            mean_wait_ms=sum(waits) / len(waits),
            p95_wait_ms=self.percentile(waits, 0.95),
            p99_wait_ms=self.percentile(waits, 0.99),
            throughput_per_s=len(served) * 1000.0 / span if span else math.inf,
            hit_rate=sum(s.hit for s in served) / len(served),
            max_over_mean_work=max(work.values()) / mean_work if mean_work else 1.0,
            makespan_ms=span,
        )

    def percentile(self, ascending: Sequence[float], share: float) -> float:
        """Nearest rank: the smallest value that at least this share of all values does not exceed."""
        return ascending[math.ceil(share * len(ascending)) - 1]


def _check(requests: Sequence[Request], replicas: Sequence[ReplicaState], policy: str) -> None:
    if not replicas:
        raise InvalidPlan("0 replicas", expected="at least one", where="replica routing")
    if policy not in POLICIES:
        raise InvalidPlan(
            f"policy {policy!r}", expected=f"one of {', '.join(POLICIES)}", where="replica routing"
        )
    if len({r.request_id for r in requests}) != len(requests):
        raise InvalidPlan("two requests of one id", expected="unique ids", where="replica routing")
    negative = [r.request_id for r in requests if r.arrival_ms < 0 or r.service_ms < 0]
    if negative:
        raise InvalidPlan(
            f"negative time in request {negative[0]}",
            expected="times of at least 0 ms",
            where="replica routing",
        )
