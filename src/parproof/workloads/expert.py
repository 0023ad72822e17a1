"""Tokens whose routes are known before the router sees them, on meshes of dp × ep × tp ranks.

The router is [I | B] and a token is [wish − B·rest, rest], so that its logits are exactly the integers wished for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from parproof.oracles.expert import Shard
from parproof.subjects.expert_protocol import DISPATCHERS, ExpertPlan
from parproof.workloads.expert_meshes import Mesh

REST, HIDDEN = 3, 6
WIDE = (8, 4, 2, 2)  # valid tokens of 4 data ranks: different, and a power of two in all


@dataclass(frozen=True)
class Case:
    """One call of the layer on a mesh."""

    name: str
    plan: ExpertPlan
    mesh: Mesh
    shards: tuple[Shard, ...]
    params: dict[str, Tensor]
    needs: tuple[str, ...] = ()
    frozen_input: bool = False


Style = Callable[[int, int, int, int], list[int]]  # (token of all, shard, E, ep) → experts by preference


def _from(first: int, num_experts: int) -> list[int]:
    return [(first + step) % num_experts for step in range(num_experts)]


STYLES: dict[str, Style] = {
    "balanced": lambda i, s, n, ep: _from(i, n),
    "skewed": lambda i, s, n, ep: _from(i % (n // ep) if i % 4 else i, n),
    "one_hot": lambda i, s, n, ep: _from(n // 2, n),
    "empty_rank": lambda i, s, n, ep: _from(i % max(1, n // ep - 1), n),
    "all_to_next": lambda i, s, n, ep: _from((s + 1) % ep * (n // ep), n),
    "scattered": lambda i, s, n, ep: sorted(range(n), key=lambda e: (i * 31 + e * 17 + i * e * 7) % 23),
}


def integers(*shape: int, seed: int, limit: int) -> Tensor:
    """Integers in [−limit, limit] as float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-limit, limit + 1, shape, generator=generator).double()


def parameters(num_experts: int) -> dict[str, Tensor]:
    """Whole parameters: router [E, D], up [E, H, D], down [E, D, H] with D = E + 3, H = 6."""
    width = num_experts + REST
    router = torch.cat([torch.eye(num_experts), integers(num_experts, REST, seed=1, limit=2)], dim=1)
    return {
        "router": router.double(),
        "up": integers(num_experts, HIDDEN, width, seed=2, limit=2),
        "down": integers(num_experts, width, HIDDEN, seed=3, limit=2),
    }


def wishes(preferences: list[list[int]], top_k: int, *, tied: bool) -> Tensor:
    """Logits: top_k + 1, top_k, … for the preferred ones, less and less for the others; tied: equal for all."""
    rows = torch.zeros(len(preferences), len(preferences[0]) if preferences else 0)
    for row, order in zip(rows, preferences, strict=True):
        for place, expert in enumerate(order):
            row[expert] = 2.0 if tied else float(top_k + 1 - place if place < top_k else -(place % 3))
    return rows.double()


def shards(
    mesh: Mesh, plan: ExpertPlan, style: str, tokens: tuple[int, ...], padding: tuple[int, ...], *, tied: bool
) -> tuple[Shard, ...]:
    """`tokens[s]` valid tokens and `padding[s]` others for each data rank; the padding wishes for expert 0."""
    coupling = parameters(plan.num_experts)["router"][:, plan.num_experts :]
    made, first = [], 0
    for shard in range(mesh.dp * mesh.ep):
        num, extra = tokens[shard], padding[shard]
        order = [STYLES[style](first + i, shard % mesh.ep, plan.num_experts, mesh.ep) for i in range(num)] + [
            _from(0, plan.num_experts)
        ] * extra
        # Padding in between, not only at the end: a mask is not a length.
        where = sorted(range(num + extra), key=lambda i: (i * 5 % (num + extra), i))
        valid = torch.tensor([i < num for i in where], dtype=torch.bool)
        rest = integers(num + extra, REST, seed=10 + shard, limit=2)
        wish = wishes([order[i] for i in where], plan.top_k, tied=tied)
        wish = wish.reshape(num + extra, plan.num_experts)
        x = torch.cat([wish - rest @ coupling.T, rest], dim=1)
        upstream = integers(num + extra, x.shape[1], seed=20 + shard, limit=2)
        made.append(Shard(x, valid, upstream, domain=shard // mesh.ep))
        first += num
    return tuple(made)


def case(
    name: str,
    mesh: Mesh,
    style: str,
    plan: ExpertPlan,
    *,
    tokens: tuple[int, ...] = (),
    padding: tuple[int, ...] = (),
    tied: bool = False,
    replay: bool = False,
    needs: tuple[str, ...] = (),
    frozen_input: bool = False,
) -> Case:
    """A case by its routing style. replay: ids are handed in, other ones than the router would choose."""
    tokens = tokens or {1: (16,), 2: (11, 5), 3: (9, 4, 3), 4: WIDE}[mesh.dp * mesh.ep]
    made = shards(mesh, plan, style, tokens, padding or (0,) * len(tokens), tied=tied)
    if replay:
        made = tuple(
            replace(s, replayed=(torch.arange(len(s.x)).unsqueeze(1) * 3 + torch.arange(plan.top_k) * 2 + i)
                    % plan.num_experts)
            for i, s in enumerate(made)
        )  # fmt: skip
    return Case(name, plan, mesh, made, parameters(plan.num_experts), needs, frozen_input)


CORE = (
    "skewed_with_drops",
    "top_3_scattered_with_drops",
    "rank_without_tokens",
    "frozen_input",
    "padding_in_between",
    "all_to_the_next_rank",
)


def cases(mesh: Mesh, dispatcher: str) -> list[Case]:
    """The integer cases: all of them by all-to-all in one group of 4 ranks, the core of them elsewhere."""
    everything = dispatcher == "all_to_all" and mesh.ep == 4
    made = _recipes(mesh, dispatcher).items()
    return [
        *(case(name, mesh, **how) for name, how in made if everything or name in CORE),
        page_combine(mesh, dispatcher),
    ]


def page_combine(mesh: Mesh, dispatcher: str) -> Case:
    """The page's sum: answers 1 and 3 of a first and a last expert with weights .25 and .75, so 2.5 everywhere.

    Every expert answers with a number of its own in every column, to any token; the token's first column after its
    wishes is 1, which is all that an expert looks at.
    """
    plan = ExpertPlan({3: 6}.get(mesh.ep, 8), 2, dispatcher, capacity_factor=8.0)
    num, experts = mesh.dp * mesh.ep, plan.num_experts
    up, down = (
        torch.zeros(*shape).double()
        for shape in ((experts, HIDDEN, experts + REST), (experts, experts + REST, HIDDEN))
    )
    up[:, 0, experts] = 1.0
    down[:, :, 0] = torch.tensor([1.0, *(float(e) * 5 for e in range(1, experts - 1)), 3.0]).unsqueeze(1)
    router = torch.cat([torch.eye(experts), torch.zeros(experts, REST)], dim=1).double()
    made = []
    for shard in range(num):
        tokens = 2 if num == 3 and shard == 0 else 1
        x = torch.full((tokens, experts + REST), -1.0).double()
        x[:, 0], x[:, experts - 1], x[:, experts] = 0.25, 0.75, 1.0
        upstream = integers(tokens, experts + REST, seed=40 + shard, limit=2)
        made.append(Shard(x, torch.ones(tokens, dtype=torch.bool), upstream, domain=shard // mesh.ep))
    return Case("page_combine", plan, mesh, tuple(made), {"router": router, "up": up, "down": down})


def _recipes(mesh: Mesh, dispatcher: str) -> dict[str, dict[str, Any]]:
    num_experts = {3: 6}.get(mesh.ep, 8)
    num = mesh.dp * mesh.ep
    plan = ExpertPlan(num_experts, 2, dispatcher, capacity_factor=8.0 if dispatcher == "padded" else None)
    roomy, tight = replace(plan, capacity_factor=1.25), replace(plan, capacity_factor=0.75)
    per_rank, top_1 = replace(tight, capacity_scope="rank"), replace(plan, top_k=1)
    silent = {1: (16,), 2: (0, 16), 3: (0, 16, 0), 4: (0, 8, 8, 0)}[num]
    padding = tuple((1, 3, 0, 2)[:num])
    placed = replace(roomy, placement=tuple((num_experts - e) % mesh.ep for e in range(num_experts)))
    from_silent = {"tokens": silent}
    return {
        "balanced": {"style": "balanced", "plan": plan},
        "skewed": {"style": "skewed", "plan": plan},
        "skewed_with_drops": {"style": "skewed", "plan": roomy},
        "top_1_to_one_expert": {"style": "one_hot", "plan": replace(tight, top_k=1)},
        "top_3_scattered_with_drops": {"style": "scattered", "plan": replace(tight, top_k=3)},
        "rank_that_receives_nothing": {"style": "empty_rank", "plan": top_1},
        "rank_without_tokens": {"style": "scattered", "plan": plan, **from_silent},
        "frozen_input": {"style": "empty_rank", "plan": top_1, "frozen_input": True, **from_silent},
        "rank_of_padding_only": {"style": "scattered", "plan": tight, "padding": (3,) * num, **from_silent},
        "padding_in_between": {"style": "scattered", "plan": tight, "padding": padding},
        "all_to_the_next_rank": {"style": "all_to_next", "plan": roomy},
        "capacity_of_each_rank": {"style": "skewed", "plan": per_rank, "needs": ("expert.capacity.rank",)},
        "ties": {"style": "balanced", "plan": plan, "tied": True, "needs": ("expert.ties",)},
        "replayed": {"style": "balanced", "plan": roomy, "replay": True, "needs": ("expert.replay",)},
        "placed": {"style": "scattered", "plan": placed, "needs": ("expert.placement",)},
    }


def gated(mesh: Mesh) -> list[Case]:
    """Softmax gates with drops and padding, through every dispatcher."""
    num = mesh.dp * mesh.ep
    return [
        case(
            f"{gate}_{dispatcher}",
            mesh,
            "scattered",
            ExpertPlan(8, 3, dispatcher, gate, capacity_factor=1.25),
            padding=(2, 0, 1, 3)[:num],
            needs=(f"expert.{dispatcher}", f"expert.gate.{gate}"),
        )
        for gate in ("softmax", "renormalised")
        for dispatcher in DISPATCHERS
    ]


def refusable(mesh: Mesh) -> dict[str, Case]:
    """Plans that cannot be, each with a name; no plan here may lead to a message."""
    plan = ExpertPlan(8, 2)
    plans = {
        "8 experts over 3 ranks": plan,
        "top 0 of 9": replace(plan, num_experts=9, top_k=0),
        "top 10 of 9": replace(plan, num_experts=9, top_k=10),
        "capacity factor 0": replace(plan, num_experts=9, capacity_factor=0.0),
        "capacity factor -1": replace(plan, num_experts=9, capacity_factor=-1.0),
        "without a capacity": replace(plan, num_experts=9, dispatcher="padded"),
        "2 owners for 9 experts": replace(plan, num_experts=9, placement=(0, 1)),
        "expert 8 belongs to rank 3": replace(plan, num_experts=9, placement=(0, 1, 2, 0, 1, 2, 0, 1, 3)),
        "dispatcher 'carrier_pigeon'": replace(plan, num_experts=9, dispatcher="carrier_pigeon"),
        "gate 'lychgate'": replace(plan, num_experts=9, gate="lychgate"),
        "capacity scope 'planet'": replace(plan, num_experts=9, capacity_scope="planet"),
        "normalisation 'none'": replace(plan, num_experts=9, normalisation="none"),
    }
    good = {n: case("good", mesh, "balanced", ExpertPlan(n, 2)) for n in (8, 9)}
    return {text: replace(good[p.num_experts], name=text, plan=p) for text, p in plans.items()}


def normalised(mesh: Mesh, kinds: tuple[str, ...]) -> list[Case]:
    """The same tokens, different numbers of them on each rank, under each normalisation."""
    plan = ExpertPlan(8, 2, capacity_factor=1.25)
    return [
        case(
            f"{kind}_mean",
            mesh,
            "scattered",
            replace(plan, normalisation=kind),
            padding=(1, 3, 0, 2),
            needs=(f"expert.normalisation.{kind}",),
        )
        for kind in kinds
    ]
