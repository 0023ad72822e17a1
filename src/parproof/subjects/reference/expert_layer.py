"""The expert layer on one rank: router, census of routes, capacity, dispatch, loss and finished gradients."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from parproof.errors import InvalidPlan
from parproof.subjects.expert_protocol import Axes, ExpertPlan, Routing
from parproof.subjects.reference import expert_plan as plans
from parproof.subjects.reference import expert_wire as wire
from parproof.subjects.reference.expert_dispatch import Dispatch, Journey
from parproof.subjects.reference.expert_loss import MeanLoss
from parproof.subjects.tensor_protocol import Piece

_PRIME = 2**31 - 1


class ExpertLayer(Dispatch, MeanLoss):
    """See expert_protocol.ExpertLayer."""

    def __init__(self, plan: ExpertPlan, params: Mapping[str, Tensor], axes: Axes) -> None:
        plans.check_plan(plan)
        self.plan, self.axes = plan, axes
        self.owners = plans.owners(plan, wire.size_of(axes.ep))
        self.mine = [e for e, owner in enumerate(self.owners) if owner == wire.rank_on(axes.ep)]
        hidden, self.width = params["up"].shape[1:]
        parts = wire.size_of(axes.tp)
        if hidden % parts:
            raise InvalidPlan(f"hidden width {hidden} over {parts} ranks", expected="a divisible width")
        self.start = wire.rank_on(axes.tp) * (hidden // parts)
        self.stop = self.start + hidden // parts
        self.router = params["router"].clone().requires_grad_()
        self.up = params["up"][self.mine, self.start : self.stop].clone().requires_grad_()
        self.down = params["down"][self.mine][:, :, self.start : self.stop].clone().requires_grad_()

    def __call__(self, x: Tensor, valid: Tensor, replayed: Tensor | None = None) -> Tensor:
        """Route, agree on the counts, drop, dispatch."""
        logits = x @ self.router.T
        ids = self.choose(logits.detach()) if replayed is None else replayed
        ids = torch.where(valid.unsqueeze(1), ids, -1)
        routed, lengths = self.census(ids, valid)
        weights = self.gate(logits, ids.clamp(min=0))
        kept = self.kept(routed)
        position = self.positions(ids)
        limit = torch.tensor(kept[wire.rank_on(self.axes.ep)], device=x.device)
        has_place = (ids >= 0) & (position < limit[ids.clamp(min=0)])
        self.last = Routing(ids, weights.detach(), has_place)
        token, slot = has_place.nonzero(as_tuple=True)
        journey = Journey(
            x=x,
            weights=weights,
            token=token,
            slot=slot,
            expert=ids[token, slot],
            position=position[token, slot],
            kept=kept,
            owners=self.owners,
            places=max(plans.capacities(routed, self.plan)),
            lengths=lengths,
            group=self.axes.ep,
            experts=self.answer,
        )
        out: Tensor = getattr(self, self.plan.dispatcher)(journey)
        return out

    def routing(self) -> Routing:
        """The routes of the last call."""
        return self.last

    def kept(self, routed: plans.Matrix) -> plans.Matrix:
        """How many routes of each source find a place at each expert."""
        return plans.kept(routed, self.plan)

    def choose(self, logits: Tensor) -> Tensor:
        """Ids of the k largest logits; a stable sort gives ties to the lower id, topk promises nothing."""
        return torch.sort(logits, dim=1, descending=True, stable=True).indices[:, : self.plan.top_k]

    def gate(self, logits: Tensor, ids: Tensor) -> Tensor:
        """Weight of each route."""
        if self.plan.gate == "linear":
            return logits.gather(1, ids)
        shares = torch.softmax(logits, dim=1).gather(1, ids)
        return shares / shares.sum(1, keepdim=True) if self.plan.gate == "renormalised" else shares

    def positions(self, ids: Tensor) -> Tensor:
        """[n, k]: how many earlier routes of this rank want the same expert."""
        wants = torch.nn.functional.one_hot(ids.flatten() + 1, self.plan.num_experts + 1)
        before = wants.cumsum(0) - wants
        return before.gather(1, ids.flatten().unsqueeze(1) + 1).view_as(ids)

    def counts(self, ids: Tensor, valid: Tensor) -> Tensor:
        """Routes of this rank by expert."""
        return torch.bincount(ids[valid].flatten(), minlength=self.plan.num_experts)

    def digest(self, ids: Tensor) -> Tensor:
        """A number ≥ 0 that tells routes apart also when every count is the same."""
        places = torch.arange(ids.numel(), device=ids.device) * 48271 % _PRIME + 1
        return ((ids.flatten() + 2) * places % _PRIME).sum()

    def census(self, ids: Tensor, valid: Tensor) -> tuple[plans.Matrix, list[int]]:
        """(source × expert, tokens of each source) in the ep group, after all ranks agreed that routes make sense.

        One all_gather over the mesh of E + 3 integers: counts, tokens, data rank, digest of the routes (−1: bad).
        """
        wrong = valid.unsqueeze(1) & ((ids < 0) | (ids >= self.plan.num_experts))
        row = torch.zeros(self.plan.num_experts + 3, dtype=torch.int64, device=ids.device)
        if bool(wrong.any()):
            row[-1] = -1
        else:
            row[:-3] = self.counts(ids, valid)
            row[-1] = self.digest(ids)
        row[-3], row[-2] = ids.shape[0], wire.rank_on(self.axes.data)
        rows = wire.gather_rows(row.unsqueeze(0), self.axes.mesh)
        self.check_agreement(rows.tolist())
        mine = rows[self.my_group()]
        return mine[:, :-3].tolist(), mine[:, -3].tolist()

    def my_group(self) -> list[int]:
        """Places of this rank's ep group in the mesh."""
        if self.axes.mesh is None:
            return [0]
        if self.axes.ep is None:
            return [self.axes.mesh.rank()]
        return [
            dist.get_group_rank(self.axes.mesh, rank) for rank in dist.get_process_group_ranks(self.axes.ep)
        ]

    def check_agreement(self, rows: list[list[int]]) -> None:
        """Every rank sees the same rows, so that all of them refuse or none does."""
        by_data_rank: dict[int, tuple[int, list[int]]] = {}
        for rank, row in enumerate(rows):
            if row[-1] == -1:
                raise InvalidPlan(
                    f"rank {rank} routes to an expert id out of range",
                    expected=f"ids from 0 to {self.plan.num_experts - 1}",
                )
            first, same = by_data_rank.setdefault(row[-2], (rank, row))
            if row != same:
                raise InvalidPlan(
                    f"ranks {first} and {rank} hold the same tokens and route them differently",
                    expected="equal routers and inputs on the ranks of a tp group",
                )

    def answer(self, rows: Tensor, which: Tensor) -> Tensor:
        """Each row through its expert. Hidden units are split over tp: partial sums are added up."""
        rows = wire.enter(rows, self.axes.tp) if self.axes.tp else rows
        places = [(which == expert).nonzero().flatten() for expert in self.mine]
        answers = [
            torch.relu(rows[at] @ self.up[i].T) @ self.down[i].T for i, at in enumerate(places) if len(at)
        ]
        if answers:
            order = torch.cat([at for at in places if len(at)])
            rows = torch.cat(answers)[torch.argsort(order)]
        else:
            # A rank without a row takes part in the backward exchange all the same.
            rows = rows + 0 * (self.up.sum() + self.down.sum())
        return wire.leave(rows, self.axes.tp) if self.axes.tp else rows

    def gradients(self) -> dict[str, list[Piece]]:
        """Summed over everyone who used the parameter: the router by all data ranks, experts by dp."""
        router, up, down = (
            torch.zeros_like(p) if p.grad is None else p.grad for p in (self.router, self.up, self.down)
        )
        router = wire.sum_over(router, self.axes.data)
        experts = wire.sum_over(torch.cat([up.flatten(), down.flatten()]), self.axes.dp)
        up, down = experts[: up.numel()].view_as(up), experts[up.numel() :].view_as(down)
        hidden, width = (self.start, self.stop), (0, self.width)
        return {
            "router": [Piece(router, ((0, self.plan.num_experts), width))],
            "up": [Piece(up[i : i + 1], ((e, e + 1), hidden, width)) for i, e in enumerate(self.mine)],
            "down": [Piece(down[i : i + 1], ((e, e + 1), width, hidden)) for i, e in enumerate(self.mine)],
        }
