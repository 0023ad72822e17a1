"""Independent answers for replica routing: a replay that checks every decision, and the best possible makespan.

The replay keeps no state of its own between requests: each decision is judged from the history alone, by the
policy's definition, so it shares no bookkeeping with a router.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any


def free_at(history: Sequence[Any], replicas: Sequence[Any], replica_id: int) -> float:
    """When a replica is free, read off what it served."""
    ends = [s.finish_ms for s in history if s.replica_id == replica_id]
    start = next(r.available_at_ms for r in replicas if r.replica_id == replica_id)
    return float(max([start, *ends]))


def holds(
    history: Sequence[Any], requests: Any, replicas: Sequence[Any], replica_id: int, prefix: str
) -> bool:
    """Did the replica start with the prefix, or serve a request that had it?"""
    initial = next(r.cached_prefixes for r in replicas if r.replica_id == replica_id)
    served = {requests[s.request_id].prefix_key for s in history if s.replica_id == replica_id}
    return bool(prefix) and (prefix in initial or prefix in served)


def allowed_choices(
    policy: str, history: Sequence[Any], requests: Any, replicas: Sequence[Any], request: Any, slack_ms: float
) -> dict[int, str]:
    """{replica id: reason} the policy's definition allows for this request after this history.

    One choice for the deterministic policies. For power-of-two: every replica except the one with the longest
    wait (of two different candidates, the shorter wait wins; ties go to the lower position). That is all one choice
    can show; whether the two were drawn at random only many can (`two_choices_share`).
    """
    ids = [r.replica_id for r in replicas]
    wait = {i: max(0.0, free_at(history, replicas, i) - request.arrival_ms) for i in ids}
    ranked = sorted(ids, key=lambda i: (wait[i], ids.index(i)))
    if policy == "round_robin":
        return {ids[len(history) % len(ids)]: "round_robin"}
    if policy == "queue_aware":
        return {ranked[0]: "shortest_queue"}
    if policy == "power_of_two":
        return dict.fromkeys(ranked[:-1] or ranked, "two_choices")
    near = [i for i in ranked if wait[i] <= wait[ranked[0]] + slack_ms]
    sessions = [
        s for s in history if request.session_id and requests[s.request_id].session_id == request.session_id
    ]
    if sessions and sessions[-1].replica_id in near:
        return {sessions[-1].replica_id: "sticky_session"}
    warm = [i for i in near if holds(history, requests, replicas, i, request.prefix_key)]
    return {warm[0]: "prefix_locality"} if warm else {ranked[0]: "queue_fallback"}


def two_choices_share(num_replicas: int, place: int) -> float:
    """How often power-of-two chooses the replica with that place by wait (0 the shortest): all pairs, by counting."""
    pairs = list(itertools.combinations(range(num_replicas), 2))
    return sum(min(pair) == place for pair in pairs) / len(pairs)


def nearest_rank(values: Sequence[float], percent: int) -> float:
    """The smallest value v such that at least `percent` % of all values are <= v, by counting."""
    return min(v for v in values if sum(w <= v for w in values) * 100 >= percent * len(values))


def best_makespan(costs: Sequence[float], num_replicas: int) -> float:
    """The optimum by exhaustion: every assignment of every job. For at most about 10 jobs."""
    return min(
        max(sum(c for c, where in zip(costs, plan, strict=True) if where == r) for r in range(num_replicas))
        for plan in itertools.product(range(num_replicas), repeat=len(costs))
    )


def answer(codes: Sequence[int], *, dim: int, modulus: int) -> int:
    """What serving a request yields, in plain integers: the sum of a product of coded matrices modulo the prime.

    codes   of each unit of work, in order: matrix [i][j] is i · dim + j + code
    """
    state = [[int(i == j) for j in range(dim)] for i in range(dim)]
    for code in codes:
        coded = [[(i * dim + j + code) % modulus for j in range(dim)] for i in range(dim)]
        columns = list(zip(*coded, strict=True))
        state = [
            [sum(a * b for a, b in zip(row, col, strict=True)) % modulus for col in columns] for row in state
        ]
    return sum(map(sum, state))
