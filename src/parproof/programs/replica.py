"""Rank programs of PAR-REPLICA-ROUTING: each rank is a replica that really does the work it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from parproof.ranks.context import RankContext
from parproof.subjects.protocol import SubjectRef
from parproof.subjects.replica_protocol import ReplicaState, Request, RoutingRules

WORK_DIM = 8
MODULUS = 97


def unit_of_work(state: torch.Tensor, request_id: int) -> torch.Tensor:
    """One matrix product over the integers modulo a prime; exact in int64."""
    rows = torch.arange(WORK_DIM).unsqueeze(1)
    coded = (rows * WORK_DIM + torch.arange(WORK_DIM) + request_id) % MODULUS
    return (state @ coded) % MODULUS


def serve_for_real(
    ctx: RankContext, subject: SubjectRef, policy: str, requests: Sequence[Request], rules: RoutingRules
) -> dict[str, Any]:
    """Rank 0 routes and broadcasts the plan; each rank serves its share; answers are summed over ranks."""
    router = subject.make("replica")
    plan = torch.full((len(requests),), -1)
    if ctx.rank == 0:
        replicas = [ReplicaState(rank) for rank in range(ctx.world_size)]
        for served in router.simulate(requests, replicas, policy, rules):
            plan[served.request_id] = served.replica_id
    with ctx.phase("dispatch"):
        dist.broadcast(plan, 0)
    answers = torch.zeros(2, len(requests), dtype=torch.int64)
    units = 0
    for request in requests:
        if plan[request.request_id] == ctx.rank:
            state = torch.eye(WORK_DIM, dtype=torch.int64)
            for _ in range(int(request.service_ms)):
                state = unit_of_work(state, request.request_id)
                units += 1
            answers[0, request.request_id] += state.sum()
            answers[1, request.request_id] += 1
    with ctx.phase("collect"):
        dist.all_reduce(answers)
    return {
        "plan": plan.tolist(),
        "units": units,
        "answers": answers[0].tolist(),
        "times_served": answers[1].tolist(),
    }
