"""What a routing means for load and traffic, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from parproof.errors import InvalidPlan
from parproof.subjects.expert_protocol import Account, ExpertPlan
from parproof.subjects.reference import expert_plan as plans

# overflow, max over mean, share of routes that cross ranks: inclusive limits
ACCEPT = (0, 1.2, 0.5)
TUNE = (1, 1.8, 0.9)


class Accounting:
    """Figures without a process group."""

    def account(
        self,
        plan: ExpertPlan,
        routes: Sequence[Sequence[Sequence[int]]],
        owners: Sequence[int],
        *,
        width: int,
        element_bytes: int,
    ) -> Account:
        """See expert_protocol.ExpertParallel.account."""
        plans.check_plan(plan)
        owner_of = plans.check_owners(owners, plan.num_experts, len(routes))
        routed = [self.row(plan, source, tokens) for source, tokens in enumerate(routes)]
        loads = [sum(column) for column in zip(*routed, strict=True)]
        total = sum(loads)
        kept = self.kept(routed, plan)
        effective = sum(map(sum, kept))
        crossing = self.crossing(routed, owner_of)
        sent = [
            [sum(n for e, n in enumerate(row) if owner_of[e] == rank) for rank in range(len(routes))]
            for row in kept
        ]
        network = self.crossing(kept, owner_of) * width * element_bytes
        return Account(
            loads=tuple(loads),
            capacity=plans.capacity(total, plan),
            overflow=total - effective,
            effective_tokens=effective,
            max_over_mean=round(max(loads) * plan.num_experts / total, 3) if total else 0.0,
            cross_rank_ratio=crossing / total if total else 0.0,
            local_hit_ratio=(total - crossing) / total if total else 0.0,
            sent=tuple(map(tuple, sent)),
            logical_bytes=total * width * element_bytes,
            network_bytes=network,
            round_trip_bytes=2 * network,
        )

    def row(self, plan: ExpertPlan, source: int, tokens: Sequence[Sequence[int]]) -> list[int]:
        """Routes of one source by expert."""
        count = Counter(expert for token in tokens for expert in token)
        for expert in count:
            if not 0 <= expert < plan.num_experts:
                raise InvalidPlan(
                    f"rank {source} routes to expert id {expert}, out of range",
                    expected=f"ids from 0 to {plan.num_experts - 1}",
                )
        return [count[expert] for expert in range(plan.num_experts)]

    def kept(self, routed: plans.Matrix, plan: ExpertPlan) -> plans.Matrix:
        """Routes that find a place."""
        return plans.kept(routed, plan)

    def crossing(self, routed: plans.Matrix, owners: Sequence[int]) -> int:
        """Routes to an expert of another rank."""
        return sum(n for source, row in enumerate(routed) for e, n in enumerate(row) if owners[e] != source)

    def recommend(self, account: Account) -> str:
        """See expert_protocol.ExpertParallel.recommend."""
        if not sum(account.loads):
            return "reject"
        seen = account.overflow, account.max_over_mean, account.cross_rank_ratio
        for verdict, limits in (("accept", ACCEPT), ("tune", TUNE)):
            if all(value <= limit for value, limit in zip(seen, limits, strict=True)):
                return verdict
        return "reject"
