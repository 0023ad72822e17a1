"""Cases of the expert layer with the single process's answers: the same for every subject."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from parproof import oracles, workloads
from parproof.cost import expert as cost
from parproof.subjects.expert_protocol import ExpertPlan
from parproof.workloads.expert_meshes import Mesh

if TYPE_CHECKING:
    from parproof.oracles.expert import Answer
    from parproof.workloads.expert import Case

Answered = list[tuple["Case", "Answer"]]


def answered(cases: Sequence[Case]) -> Answered:
    """[(case, the single process's answer)]."""
    return [(case, oracles.expert.layer(case.params, case.shards, case.plan)) for case in cases]


@functools.cache
def integers(mesh: Mesh, dispatcher: str) -> Answered:
    """The integer cases of a mesh."""
    return answered(workloads.expert.cases(mesh, dispatcher))


@functools.cache
def balanced_and_skewed(mesh: Mesh) -> Answered:
    """Sixteen tokens of each rank for one layer: as many to each expert, then most of them to rank 0's."""
    tokens = (16,) * (mesh.dp * mesh.ep)
    styles = ("balanced", "skewed")
    return answered([workloads.expert.case(s, mesh, s, ExpertPlan(8, 2), tokens=tokens) for s in styles])


def work(case: Case, answer: Answer) -> dict[str, object]:
    """What a case asks of a dense layer and of experts, and how unevenly: facts beside its seconds, which no check judges.

    expert_load_skew is (max − min)/mean, the figure that PAR-OVERLAP-HOTSPOT takes; uniform_cross_ratio is what
    cross_rank_ratio would be if all destinations were as likely.
    """
    tokens = sum(int(shard.valid.sum()) for shard in case.shards)
    hidden = case.params["up"].shape[1]
    asked = cost.dense_and_sparse(tokens, hidden, case.plan.top_k, case.plan.num_experts)
    rows = rows_received(answer, case.mesh.ep)
    loads = [sum(column) for column in zip(*answer.kept, strict=True)]
    return {
        "rows_received": rows,
        **dataclasses.asdict(asked),
        "expert_load_skew": cost.load_skew(loads),
        "uniform_cross_ratio": cost.uniform_cross_ratio(case.mesh.ep),
    }


def rows_received(answer: Answer, num_ranks: int) -> list[int]:
    """Rows that arrive at each rank of one ep group with experts in contiguous blocks."""
    by_expert = [sum(column) for column in zip(*answer.kept, strict=True)]
    share = len(by_expert) // num_ranks
    return [sum(by_expert[rank * share : (rank + 1) * share]) for rank in range(num_ranks)]
