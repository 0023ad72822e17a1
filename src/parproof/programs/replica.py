"""Rank programs of PAR-REPLICA-ROUTING: each rank is a replica that really does the work it is given."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from parproof.ranks.context import RankContext
from parproof.subjects.protocol import SubjectRef
from parproof.subjects.replica_protocol import ReplicaState, Request, RoutingRules
from parproof.workloads.replica import PREFIX_UNITS, unit_codes

WORK_DIM = 8
MODULUS = 97


def unit_of_work(state: torch.Tensor, code: int) -> torch.Tensor:
    """One matrix product over the integers modulo a prime; exact in int64."""
    rows = torch.arange(WORK_DIM).unsqueeze(1)
    coded = (rows * WORK_DIM + torch.arange(WORK_DIM) + code) % MODULUS
    return (state @ coded) % MODULUS


class Replica:
    """One rank's cache and counters. A held prefix is the product of its units, so a hit skips them."""

    def __init__(self) -> None:
        self.cache: dict[str, torch.Tensor] = {}
        self.units = 0

    def serve(self, request: Request) -> tuple[torch.Tensor, bool]:
        """(answer, whether the prefix was held)."""
        shared, prefix = PREFIX_UNITS[request.prefix_key], request.prefix_key
        hit = prefix in self.cache
        state = self.cache[prefix] if hit else torch.eye(WORK_DIM, dtype=torch.int64)
        for done, code in enumerate(unit_codes(request)):
            if done >= shared or not hit:
                state = unit_of_work(state, code)
                self.units += 1
            if prefix and done + 1 == shared:
                self.cache[prefix] = state
        return state.sum(), hit


def serve_for_real(
    ctx: RankContext,
    subject: SubjectRef,
    policy: str,
    requests: Sequence[Request],
    rules: RoutingRules,
    repeats: int = 1,
) -> dict[str, Any]:
    """Rank 0 routes and broadcasts the plan; each rank serves its share; answers are summed over ranks.

    Of the subject is the plan alone: `Replica` works it off.

    Several times over, with cold caches. spans: of each time, {request: (start, end)} in s since the plan arrived.
    """
    router = subject.make("replica")
    plan = torch.full((len(requests),), -1)
    served = []
    if ctx.rank == 0:
        served = router.simulate(requests, [ReplicaState(r) for r in range(ctx.world_size)], policy, rules)
        for one in served:
            plan[one.request_id] = one.replica_id
    spans = []
    for _ in range(repeats):
        with ctx.phase("dispatch"):
            dist.broadcast(plan, 0)
        results = torch.zeros(3, len(requests), dtype=torch.int64)
        replica, arrived_s, spans_now = Replica(), time.perf_counter(), {}
        for request in sorted(requests, key=lambda r: (r.arrival_ms, r.request_id)):
            if plan[request.request_id] != ctx.rank:
                continue
            started_s = time.perf_counter()
            answer, hit = replica.serve(request)
            spans_now[request.request_id] = started_s - arrived_s, time.perf_counter() - arrived_s
            results[:, request.request_id] += torch.stack([answer, torch.tensor(1), torch.tensor(int(hit))])
        spans.append(spans_now)
        with ctx.phase("collect"):
            dist.all_reduce(results)
    answers, times_served, hits = results.tolist()
    return {
        "plan": plan.tolist(),
        "served": served,
        "units": replica.units,
        "answers": answers,
        "times_served": times_served,
        "hits": hits,
        "spans": spans,
    }
