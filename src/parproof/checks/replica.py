"""Checks of a simulated fleet: decisions by definition, invariants of any schedule, figures by definition."""

from __future__ import annotations

import math
from collections.abc import Sequence

from parproof.oracles import replica as oracle
from parproof.subjects.replica_protocol import ReplicaState, Request, RoutingMetrics, RoutingRules, Served


def assert_decisions(
    served: Sequence[Served],
    requests: Sequence[Request],
    replicas: Sequence[ReplicaState],
    policy: str,
    rules: RoutingRules,
) -> None:
    """Each choice and its reason follow from what was served before it."""
    __tracebackhide__ = True
    by_id = {request.request_id: request for request in requests}
    for place, one in enumerate(served):
        request = by_id[one.request_id]
        allowed = oracle.allowed_choices(policy, served[:place], by_id, replicas, request, rules.slack_ms)
        if allowed.get(one.replica_id) != one.reason:
            raise AssertionError(
                f"request {one.request_id}: {policy} chose replica {one.replica_id} ({one.reason});"
                f" expected {' or '.join(f'{r} ({why})' for r, why in sorted(allowed.items()))}"
            )


def assert_schedule(
    served: Sequence[Served],
    requests: Sequence[Request],
    replicas: Sequence[ReplicaState],
    rules: RoutingRules,
) -> None:
    """Every request once, in order of arrival; no start before arrival or while busy; service time as stated."""
    __tracebackhide__ = True
    expected = [r.request_id for r in sorted(requests, key=lambda r: (r.arrival_ms, r.request_id))]
    if [one.request_id for one in served] != expected:
        raise AssertionError(
            f"served {[one.request_id for one in served]}, expected {expected} once each, in order"
        )
    by_id = {request.request_id: request for request in requests}
    for place, one in enumerate(served):
        request, before = by_id[one.request_id], served[:place]
        hit = oracle.holds(before, by_id, replicas, one.replica_id, request.prefix_key)
        start = max(request.arrival_ms, oracle.free_at(before, replicas, one.replica_id))
        finish = start + request.service_ms * (rules.hit_factor if hit else 1.0)
        if (one.start_ms, one.finish_ms, one.hit) != (start, finish, hit):
            raise AssertionError(
                f"request {one.request_id} on replica {one.replica_id}: observed start {one.start_ms},"
                f" finish {one.finish_ms}, hit {one.hit}; expected {start}, {finish}, {hit}"
            )


def work_ms(served: Sequence[Served], replicas: Sequence[ReplicaState]) -> list[float]:
    """Service time of each replica, in the order of the fleet."""
    return [sum(s.finish_ms - s.start_ms for s in served if s.replica_id == r.replica_id) for r in replicas]


def assert_metrics(
    metrics: RoutingMetrics,
    requests: Sequence[Request],
    replicas: Sequence[ReplicaState],
    served: Sequence[Served],
) -> None:
    """Each figure equals its definition, computed by counting."""
    __tracebackhide__ = True
    arrival = {request.request_id: request.arrival_ms for request in requests}
    waits = [one.start_ms - arrival[one.request_id] for one in served]
    work = work_ms(served, replicas)
    span = max(one.finish_ms for one in served) - min(arrival.values())
    expected = {
        "mean_wait_ms": sum(waits) / len(waits),
        "p95_wait_ms": oracle.nearest_rank(waits, 95),
        "p99_wait_ms": oracle.nearest_rank(waits, 99),
        "throughput_per_s": len(served) / span * 1000.0,
        "hit_rate": sum(one.hit for one in served) / len(served),
        "max_over_mean_work": max(work) * len(work) / sum(work),
        "makespan_ms": span,
    }
    for name, value in expected.items():
        observed = getattr(metrics, name)
        # Sums of a few dozen terms in another order: a relative error of 1e-12 is far above their rounding.
        if not math.isclose(observed, value, rel_tol=1e-12):
            raise AssertionError(f"{name}: observed {observed}, expected {value} by its definition")
