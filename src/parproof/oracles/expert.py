"""A layer of experts in one process, in float64, token by token, with its gradients written out by hand.

There is no dispatch, no buffer and no sort here: a token's logits are ranked, a counter says whether the expert has
a place left, and the expert answers that one token.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Shard:
    """One data rank's tokens. x [n, D], valid [n], upstream [n, D], replayed [n, k] or None.

    domain   shards of one domain share experts and, with scope «group», their places
    """

    x: Tensor
    valid: Tensor
    upstream: Tensor
    domain: int = 0
    replayed: Tensor | None = None


@dataclass
class Route:
    """One (token, slot)."""

    shard: int
    token: int
    slot: int
    expert: int
    kept: bool = False
    weight: float = 0.0


@dataclass
class Answer:
    """What the layer gives: per shard, and for the parameters. routed and kept: [shard][expert] counts."""

    outputs: list[Tensor]
    input_gradients: list[Tensor]
    gradients: dict[str, Tensor]
    ids: list[Tensor]
    weights: list[Tensor]
    kept_routes: list[Tensor]
    routed: list[list[int]]
    kept: list[list[int]]
    loss: float = 0.0
    capacity: dict[int, int] = field(default_factory=dict)
    routes: list[Route] = field(default_factory=list)


def places(num_routes: int, factor: float, num_experts: int) -> int:
    """Places at each expert: routes · factor / E, rounded up, in decimal."""
    exact = Decimal(str(factor)) * num_routes / num_experts
    return int(exact.to_integral_value(rounding=ROUND_CEILING))


def layer(params: Mapping[str, Tensor], shards: Sequence[Shard], plan: Any) -> Answer:
    """Everything about one call: decisions, outputs, loss and gradients. `plan` is read by attribute."""
    weights = {name: p.double() for name, p in params.items()}
    answer = Answer(
        outputs=[torch.zeros_like(s.x, dtype=torch.float64) for s in shards],
        input_gradients=[torch.zeros_like(s.x, dtype=torch.float64) for s in shards],
        gradients={name: torch.zeros_like(p) for name, p in weights.items()},
        ids=[torch.full((len(s.x), plan.top_k), -1) for s in shards],
        weights=[torch.zeros(len(s.x), plan.top_k, dtype=torch.float64) for s in shards],
        kept_routes=[torch.zeros(len(s.x), plan.top_k, dtype=torch.bool) for s in shards],
        routed=[[0] * plan.num_experts for _ in shards],
        kept=[[0] * plan.num_experts for _ in shards],
    )
    _decide(answer, weights["router"], shards, plan)
    shares = _shares_of_the_mean(shards, plan.normalisation)
    for (shard, _), mine in itertools.groupby(answer.routes, key=lambda r: (r.shard, r.token)):
        _one_token(answer, weights, shards[shard], list(mine), shares[shard], plan.gate)
    return answer


def _decide(answer: Answer, router: Tensor, shards: Sequence[Shard], plan: Any) -> None:
    for shard, s in enumerate(shards):
        for token in range(len(s.x)):
            if not s.valid[token]:
                continue
            logits = (router @ s.x[token].double()).tolist()
            ranked = sorted(range(plan.num_experts), key=lambda e: (-logits[e], e))[: plan.top_k]
            chosen = ranked if s.replayed is None else s.replayed[token].tolist()
            for slot, expert in enumerate(chosen):
                answer.routes.append(Route(shard, token, slot, expert))
                answer.routed[shard][expert] += 1
                answer.ids[shard][token, slot] = expert
    share = [_competitors(shard, shards, plan.capacity_scope) for shard in range(len(shards))]
    for shard, others in enumerate(share):
        total = sum(sum(answer.routed[other]) for other in others)
        limited = plan.capacity_factor is not None
        answer.capacity[shard] = places(total, plan.capacity_factor, plan.num_experts) if limited else total
    taken: dict[tuple[int, int], int] = {}
    for route in answer.routes:
        key = share[route.shard][0], route.expert
        taken[key] = taken.get(key, 0) + 1
        route.kept = taken[key] <= answer.capacity[route.shard]
        answer.kept[route.shard][route.expert] += route.kept
        answer.kept_routes[route.shard][route.token, route.slot] = route.kept


def _competitors(shard: int, shards: Sequence[Shard], scope: str) -> list[int]:
    if scope == "rank":
        return [shard]
    return [other for other, s in enumerate(shards) if s.domain == shards[shard].domain]


def _shares_of_the_mean(shards: Sequence[Shard], normalisation: str) -> list[float]:
    counts = [int(s.valid.sum()) for s in shards]
    if normalisation == "global":
        return [1 / max(sum(counts), 1)] * len(shards)
    return [1 / (len(shards) * max(count, 1)) for count in counts]


def _one_token(
    answer: Answer, weights: Mapping[str, Tensor], s: Shard, routes: list[Route], share: float, gate: str
) -> None:
    shard, token = routes[0].shard, routes[0].token
    x, chosen = s.x[token].double(), [r.expert for r in routes]
    logits = weights["router"] @ x
    scores = _gate(logits, chosen, gate)
    upstream = s.upstream[token].double() * share
    d_scores = torch.zeros(len(routes), dtype=torch.float64)
    for route in routes:
        route.weight = float(scores[route.slot])
        answer.weights[shard][token, route.slot] = route.weight
        if not route.kept:
            continue
        up, down = weights["up"][route.expert], weights["down"][route.expert]
        before = up @ x
        hidden = before.clamp(min=0)
        value = down @ hidden
        answer.outputs[shard][token] += route.weight * value
        answer.loss += float(upstream @ value) * route.weight
        d_scores[route.slot] = upstream @ value
        d_value = route.weight * upstream
        d_hidden = (down.T @ d_value) * (before > 0)
        answer.gradients["down"][route.expert] += torch.outer(d_value, hidden)
        answer.gradients["up"][route.expert] += torch.outer(d_hidden, x)
        answer.input_gradients[shard][token] += up.T @ d_hidden
    d_logits = _gate_gradient(logits, chosen, scores, d_scores, gate)
    answer.gradients["router"] += torch.outer(d_logits, x)
    answer.input_gradients[shard][token] += weights["router"].T @ d_logits


def _gate(logits: Tensor, chosen: list[int], gate: str) -> Tensor:
    if gate == "linear":
        return logits[chosen]
    among = logits[chosen] if gate == "renormalised" else logits
    exponentials = torch.exp(logits - among.max())
    return exponentials[chosen] / exponentials[chosen if gate == "renormalised" else slice(None)].sum()


def _gate_gradient(logits: Tensor, chosen: list[int], scores: Tensor, d_scores: Tensor, gate: str) -> Tensor:
    gradient = torch.zeros_like(logits)
    if gate == "linear":
        gradient[chosen] = d_scores
    elif gate == "renormalised":
        gradient[chosen] = scores * (d_scores - scores @ d_scores)
    else:
        gradient = -torch.exp(logits - logits.logsumexp(0)) * (scores @ d_scores)
        gradient[chosen] += scores * d_scores
    return gradient
