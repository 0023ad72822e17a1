"""Request streams for replica routing: each separates policies that others confuse."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from parproof.subjects.replica_protocol import ReplicaState, Request

# Work units of the source page: round robin gives 6/26, least loaded in order of arrival 17/15, the best is 16.
PAGE_COSTS = (1, 8, 2, 7, 1, 6, 2, 5)


def burst(costs: tuple[int, ...] = PAGE_COSTS) -> list[Request]:
    """All arrive at once; the costs alone decide."""
    return [Request(i, 0.0, float(cost)) for i, cost in enumerate(costs)]


def four_requests() -> list[Request]:
    """Two prefixes in turn on two replicas; found by search: it has all the known figures of the page's four requests."""
    plan = [("a", 20), ("b", 8), ("a", 8), ("b", 6)]
    return [Request(i, float(i), float(ms), prefix) for i, (prefix, ms) in enumerate(plan)]


def shared_prefixes() -> list[Request]:
    """Two prefixes, short gaps, uneven work: locality and queue length pull apart."""
    plan = [
        ("a", 12),
        ("b", 3),
        ("a", 4),
        ("a", 9),
        ("b", 5),
        ("b", 2),
        ("a", 7),
        ("b", 11),
        ("a", 1),
        ("a", 6),
    ]
    return [Request(i, 2.0 * i, float(ms), prefix) for i, (prefix, ms) in enumerate(plan)]


def sessions() -> list[Request]:
    """Three sessions that come back, one of them with a new prefix each time; arrivals not in order of id."""
    plan = [
        ("s1", "p", 9),
        ("s2", "q", 4),
        ("s1", "r", 6),
        ("s3", "p", 8),
        ("s2", "p", 3),
        ("s1", "t", 5),
        ("s3", "q", 7),
    ]
    made = [Request(i, 3.0 * i, float(ms), prefix, session) for i, (session, prefix, ms) in enumerate(plan)]
    return made[::-1]


def sessions_under_load() -> list[Request]:
    """A session's owner is busy for longer than the slack: the session moves, and then stays where it went."""
    plan = [("s1", 30), ("s1", 4), ("s1", 3), ("s2", 9), ("s1", 20), ("s2", 2), ("s1", 1)]
    return [Request(i, float(i), float(ms), "", session) for i, (session, ms) in enumerate(plan)]


def simultaneous() -> list[Request]:
    """Ties everywhere: equal arrivals, equal work, given out of order of id."""
    return [Request(i, float(i // 3), 4.0, "p" if i % 2 else "", "") for i in (5, 0, 3, 1, 4, 2, 7, 6, 8)]


def idle_gaps() -> list[Request]:
    """Arrivals far apart: every queue is empty, no wait may be negative."""
    return [Request(i, 100.0 * i, 5.0 + i, "p" if i % 3 == 0 else "q", f"s{i % 2}") for i in range(6)]


# Units of work that all requests with a prefix begin with: 0.3 of their service time, the share that a hit saves.
PREFIX_UNITS = {"": 0, "p": 3, "q": 6}


def unit_codes(request: Request) -> list[int]:
    """What each unit of work multiplies with: first the prefix, equal for all that share it, then the request's own."""
    shared = PREFIX_UNITS[request.prefix_key]
    own = int(request.service_ms) - shared
    return [sum(map(ord, request.prefix_key))] * shared + [request.request_id] * own


def real_work() -> list[Request]:
    """For replicas that do the work: a prefix is always as long, so one that is held is worth the same to everybody."""
    plan = [
        ("p", "s1", 0.0),
        ("q", "", 1.0),
        ("p", "s2", 2.0),
        ("", "s1", 4.0),
        ("q", "s2", 7.0),
        ("p", "", 9.0),
        ("p", "s1", 16.0),
        ("q", "", 21.0),
        ("", "s3", 22.0),
        ("p", "s3", 23.0),
        ("q", "s1", 24.0),
        ("", "", 25.0),
    ]
    length = {"": 5.0, "p": 10.0, "q": 20.0}
    return [Request(i, at, length[prefix], prefix, session) for i, (prefix, session, at) in enumerate(plan)]


STREAMS = {
    "burst": burst,
    "shared_prefixes": shared_prefixes,
    "sessions": sessions,
    "sessions_under_load": sessions_under_load,
    "simultaneous": simultaneous,
    "idle_gaps": idle_gaps,
    "real_work": real_work,
}


def cold(num_replicas: int) -> list[ReplicaState]:
    """Free replicas with empty caches."""
    return [ReplicaState(i) for i in range(num_replicas)]


def warm_and_busy() -> list[ReplicaState]:
    """The one that holds prefix «p» is busy for 20 ms, the other for 5 ms (the page's slack example)."""
    return [ReplicaState(0, 20.0, frozenset({"p"})), ReplicaState(1, 5.0)]


# ms of slack in that example, where the waits differ by 15.
SLACKS = {
    "none": 0.0,
    "short_of_the_page": 5.0,
    "just_too_little": 15.0 - 2**-20,  # exact, also when a wait is added to it
    "exactly_enough": 15.0,
    "ample_of_the_page": 20.0,
    "plenty": 50.0,
}

# What cannot be routed: (requests, replicas, policy, text of the refusal).
UNROUTABLE = {
    "no_replicas": (burst(), [], "queue_aware", r"\b0 replicas"),
    "unknown_policy": (burst(), cold(2), "fastest", "policy 'fastest'"),
    "duplicate_id": ([Request(1, 0, 1), Request(1, 0, 1)], cold(2), "round_robin", "two requests of one id"),
    "negative_time": ([Request(1, -1.0, 1)], cold(2), "round_robin", r"negative time in request 1\b"),
}


def short_and_steady(num_requests: int) -> list[Request]:
    """Each is served before the next one comes, where nobody is busy with something else."""
    return [Request(i, 2.0 * i, 1.0) for i in range(num_requests)]


def waiting(order: Sequence[int]) -> list[ReplicaState]:
    """Busy for so long, and so differently, that some hundred short requests never change the order of waits."""
    return [ReplicaState(i, 1e6 * (1 + order.index(i))) for i in range(len(order))]


# Four replicas by wait, shortest first, each two of them once at the end either way round: there the last but one is
# chosen only when just these two are drawn.
EACH_PAIR_LAST = [
    (*(r for r in range(4) if r not in pair), *pair) for pair in itertools.permutations(range(4), 2)
]
