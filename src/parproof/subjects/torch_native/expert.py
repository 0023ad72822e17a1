"""Expert parallelism as a user of torch would put it together: torch ships the pieces, not the layer.

From torch      topk, softmax, linear, the functional collectives and their gradients (all_to_all_single_autograd,
                all-gather and reduce-scatter). torch.nn.functional.grouped_mm takes no float64, so experts are a loop.
Put together    the order of rows, split sizes, capacity (arithmetic shared with the reference), the loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor
from torch.nn.functional import linear, one_hot, pad, relu

from parproof.errors import InvalidPlan
from parproof.subjects.expert_protocol import Axes, Exchange, ExpertPlan, Routing
from parproof.subjects.reference import expert_plan as plans
from parproof.subjects.tensor_protocol import Piece
from parproof.torch_names import (
    functional_all_gather,
    functional_all_gather_autograd,
    functional_reduce_scatter_autograd,
)


class ExpertParallel:
    """See expert_protocol.ExpertParallel; figures and their judgement are not torch's."""

    def layer(self, plan: ExpertPlan, params: Mapping[str, Tensor], axes: Axes) -> ExpertLayer:
        """This rank's part of the layer."""
        return ExpertLayer(plan, params, axes)

    def exchange(self, plan: ExpertPlan) -> Exchange:
        """Counts stay in the ep group."""
        return Exchange("all_gather.ep", plan.dispatcher)


class ExpertLayer(torch.nn.Module):
    """See expert_protocol.ExpertLayer."""

    def __init__(self, plan: ExpertPlan, params: Mapping[str, Tensor], axes: Axes) -> None:
        super().__init__()
        plans.check_plan(plan)
        self.plan, self.axes = plan, axes
        self.ep = axes.ep.size() if axes.ep else 1
        self.me = axes.ep.rank() if axes.ep else 0
        self.owner = torch.tensor(plans.owners(plan, self.ep), device=params["router"].device)
        self.mine = (self.owner == self.me).nonzero().flatten()
        self.router = torch.nn.Parameter(params["router"].clone())
        self.up = torch.nn.Parameter(params["up"][self.mine])
        self.down = torch.nn.Parameter(params["down"][self.mine])

    def forward(self, x: Tensor, valid: Tensor, replayed: Tensor | None = None) -> Tensor:
        """Route, count, drop, dispatch."""
        logits = linear(x, self.router)
        ids = torch.topk(logits, self.plan.top_k, dim=1).indices if replayed is None else replayed
        ids = ids.masked_fill(~valid.unsqueeze(1), -1)
        counts = self.counts(ids, valid)
        weights = self.weigh(logits, ids.clamp(min=0))
        kept = torch.tensor(plans.kept(counts[:, :-1].tolist(), self.plan), device=x.device)
        wants = one_hot(ids.flatten() + 1, self.plan.num_experts + 1)[:, 1:]
        place = ((wants.cumsum(0) - 1) * wants).sum(1).view_as(ids)
        has_place = (ids >= 0) & (place < kept[self.me][ids.clamp(min=0)])
        self.last = Routing(ids, weights.detach(), has_place)
        if self.plan.dispatcher == "all_gather":
            return self.by_all_gather(x, weights, ids.masked_fill(~has_place, -1), int(counts[:, -1].max()))
        return self.by_all_to_all(x, weights, ids, has_place, kept)

    def routing(self) -> Routing:
        """The routes of the last call."""
        return self.last

    def counts(self, ids: Tensor, valid: Tensor) -> Tensor:
        """[ep, E + 1]: routes of each rank by expert, and its number of tokens."""
        mine = ids[valid].flatten()
        bad = bool(((mine < 0) | (mine >= self.plan.num_experts)).any())
        row = torch.full((self.plan.num_experts + 1,), -1, device=ids.device)
        if not bad:
            row[:-1] = torch.bincount(mine, minlength=self.plan.num_experts)
            row[-1] = ids.shape[0]
        rows: Tensor = row if self.axes.ep is None else functional_all_gather(row, 0, self.axes.ep)
        rows = rows.view(self.ep, -1)
        if bool((rows < 0).any()):
            raise InvalidPlan(
                f"rank {int((rows[:, -1] < 0).nonzero()[0])} of the group routes to an expert id out of range",
                expected=f"ids from 0 to {self.plan.num_experts - 1}",
            )
        return rows

    def weigh(self, logits: Tensor, ids: Tensor) -> Tensor:
        """Weight of each route."""
        if self.plan.gate == "linear":
            return logits.gather(1, ids)
        if self.plan.gate == "softmax":
            return logits.softmax(1).gather(1, ids)
        return logits.gather(1, ids).softmax(1)

    def by_all_to_all(
        self, x: Tensor, weights: Tensor, ids: Tensor, has_place: Tensor, kept: Tensor
    ) -> Tensor:
        """Rows sorted by owner and expert, uneven splits."""
        token, slot = has_place.nonzero(as_tuple=True)
        expert = ids[token, slot]
        order = torch.argsort(self.owner[expert] * self.plan.num_experts + expert, stable=True)
        token, slot = token[order], slot[order]
        sent = [int(kept[self.me][self.owner == rank].sum()) for rank in range(self.ep)]
        received = kept[:, self.mine]
        which = self.mine.repeat(self.ep).repeat_interleave(received.flatten())
        splits = received.sum(1).tolist()
        rows = self.swap(x[token], splits, sent)
        back = self.swap(self.experts(rows, which), sent, splits)
        return torch.zeros_like(x).index_add(0, token, back * weights[token, slot].unsqueeze(1))

    def by_all_gather(self, x: Tensor, weights: Tensor, ids: Tensor, length: int) -> Tensor:
        """All tokens everywhere, answers reduce-scattered; shorter ranks are padded."""
        missing = length - x.shape[0]
        ids = self.gather(pad(ids, (0, 0, 0, missing), value=-1), functional_all_gather)
        everyone = self.gather(pad(x, (0, 0, 0, missing)), functional_all_gather_autograd)
        weights = self.gather(pad(weights, (0, 0, 0, missing)), functional_all_gather_autograd)
        token, slot = torch.isin(ids, self.mine).nonzero(as_tuple=True)
        answers = self.experts(everyone[token], ids[token, slot]) * weights[token, slot].unsqueeze(1)
        out: Tensor = torch.zeros_like(everyone).index_add(0, token, answers)
        if self.axes.ep is not None:
            out = functional_reduce_scatter_autograd(out, "sum", 0, self.axes.ep)
        return out[: x.shape[0]]

    def experts(self, rows: Tensor, which: Tensor) -> Tensor:
        """Each row through its expert."""
        out = torch.zeros_like(rows)
        for i, expert in enumerate(self.mine):
            at = (which == expert).nonzero().flatten()
            out = out.index_add(0, at, linear(relu(linear(rows[at], self.up[i])), self.down[i]))
        return out if len(self.mine) else rows + 0 * self.up.sum()

    def swap(self, rows: Tensor, received: list[int], sent: list[int]) -> Tensor:
        """torch's own differentiable all-to-all."""
        if self.axes.ep is None:
            return rows
        return functional.all_to_all_single_autograd(rows, received, sent, self.axes.ep)

    def gather(self, rows: Tensor, collective: Any) -> Tensor:
        """torch's own all-gather."""
        gathered: Tensor = rows if self.axes.ep is None else collective(rows, 0, self.axes.ep)
        return gathered

    def mean_loss(self, per_token: Tensor, valid: Tensor) -> Tensor:
        """The global value, with this rank's gradient."""
        total, count = (per_token * valid).sum(), valid.sum().to(per_token.dtype)
        if self.plan.normalisation == "local":
            total, count = total / count.clamp(min=1), torch.ones_like(count)
        sums = torch.stack([total.detach(), count])
        if self.axes.data is not None:
            dist.all_reduce(sums, group=self.axes.data)
        mine = total / sums[1].clamp(min=1)
        return mine + (sums[0] / sums[1].clamp(min=1) - mine).detach()

    def gradients(self) -> dict[str, list[Piece]]:
        """Router summed over data ranks, experts over dp."""
        router, up, down = (torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters())
        flat = torch.cat([up.flatten(), down.flatten()])
        if self.axes.data is not None:
            dist.all_reduce(router, group=self.axes.data)
        if self.axes.dp is not None:
            dist.all_reduce(flat, group=self.axes.dp)
        up, down = flat[: up.numel()].view_as(up), flat[up.numel() :].view_as(down)
        (hidden, width), owned = up.shape[1:], enumerate(self.mine.tolist())
        pieces: dict[str, list[Piece]] = {"up": [], "down": []}
        for i, e in owned:
            pieces["up"].append(Piece(up[i : i + 1], ((e, e + 1), (0, hidden), (0, width))))
            pieces["down"].append(Piece(down[i : i + 1], ((e, e + 1), (0, width), (0, hidden))))
        return {"router": [Piece(router, ((0, self.plan.num_experts), (0, width)))], **pieces}
