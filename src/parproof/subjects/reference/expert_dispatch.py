"""Three ways of bringing tokens to their experts and the answers back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from parproof.subjects.reference import expert_wire as wire
from parproof.subjects.reference.expert_plan import Matrix

Experts = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Journey:
    """The routes of this rank that found a place, and what is known of the other ranks of the ep group.

    token, slot, expert   of each kept route, in order of (token, slot)
    position              of the route among this rank's routes to that expert
    kept                  source rank × expert
    places                capacity to pad to; lengths: number of tokens of each rank
    experts               (rows, expert of each row) → rows
    """

    x: Tensor
    weights: Tensor
    token: Tensor
    slot: Tensor
    expert: Tensor
    position: Tensor
    kept: Matrix
    owners: Sequence[int]
    places: int
    lengths: Sequence[int]
    group: wire.Group
    experts: Experts

    @property
    def me(self) -> int:
        """This rank in the ep group."""
        return wire.rank_on(self.group)

    def owned_by(self, rank: int) -> list[int]:
        """Experts of a rank."""
        return [expert for expert, owner in enumerate(self.owners) if owner == rank]

    def mine(self) -> Tensor:
        """Experts of this rank, as ids to compare with."""
        return torch.tensor(self.owned_by(self.me), dtype=torch.int64, device=self.x.device)

    @property
    def departure(self) -> Tensor:
        """Expert → its place in the send buffer: by owner, then by id."""
        order = sorted(range(len(self.owners)), key=lambda expert: (self.owners[expert], expert))
        place = torch.empty(len(order), dtype=torch.int64)
        place[torch.tensor(order)] = torch.arange(len(order))
        return place.to(self.x.device)


class Dispatch:
    """Methods named after the dispatchers: Journey → [n, D]."""

    def all_to_all(self, j: Journey) -> Tensor:
        """Rows as they fall: uneven splits, nothing for a rank without a route."""
        order = torch.argsort(j.departure[j.expert], stable=True)
        token = j.token[order]
        ranks = range(len(j.kept))
        sent = [sum(j.kept[j.me][e] for e in j.owned_by(d)) for d in ranks]
        received = [sum(j.kept[s][e] for e in j.owned_by(j.me)) for s in ranks]
        rows = self.swap(j.x[token], sent, received, j.group)
        which = [e for s in ranks for e in j.owned_by(j.me) for _ in range(j.kept[s][e])]
        answers = j.experts(rows, torch.tensor(which, dtype=torch.int64, device=rows.device))
        back = self.swap(answers, received, sent, j.group)
        return self.combine(j, back, token, j.slot[order])

    def padded(self, j: Journey) -> Tensor:
        """`places` rows for every (source, expert), empty ones zero: equal splits for equal shares of experts."""
        ranks = range(len(j.kept))
        seat = j.departure[j.expert] * j.places + j.position
        buffer = j.x.new_zeros(len(j.owners) * j.places, j.x.shape[1]).index_add(0, seat, j.x[j.token])
        sent = [len(j.owned_by(d)) * j.places for d in ranks]
        received = [len(j.owned_by(j.me)) * j.places for _ in ranks]
        rows = self.swap(buffer, sent, received, j.group)
        which = j.mine().repeat_interleave(j.places)
        answers = j.experts(rows, which.repeat(len(ranks)))
        back = self.swap(answers, received, sent, j.group)
        return self.combine(j, back[seat], j.token, j.slot)

    def all_gather(self, j: Journey) -> Tensor:
        """Every rank gets all tokens, answers what is its own, and the answers are summed where they belong."""
        length = max(j.lengths)
        ids = torch.full((length, j.weights.shape[1]), -1, device=j.x.device)
        ids[j.token, j.slot] = j.expert
        everyone = wire.gather_rows(ids, j.group)
        x = wire.gather(_padded(j.x, length), j.group)
        weights = wire.gather(_padded(j.weights, length), j.group)
        mine = torch.isin(everyone, j.mine())
        token, slot = mine.nonzero(as_tuple=True)
        answers = j.experts(x[token], everyone[token, slot])
        weighted = answers * weights[token, slot].unsqueeze(1)
        partial = torch.zeros_like(x).index_add(0, token, weighted)
        return wire.scatter_sum(partial, j.group)[: j.x.shape[0]]

    def swap(self, rows: Tensor, sent: Sequence[int], received: Sequence[int], group: wire.Group) -> Tensor:
        """The exchange of rows: see expert_wire."""
        return wire.swap(rows, sent, received, group)

    def combine(self, j: Journey, answers: Tensor, token: Tensor, slot: Tensor) -> Tensor:
        """Weighted sum of a token's answers."""
        weighted = answers * j.weights[token, slot].unsqueeze(1)
        return torch.zeros_like(j.x).index_add(0, token, weighted)


def _padded(rows: Tensor, length: int) -> Tensor:
    return torch.cat([rows, rows.new_zeros(length - rows.shape[0], rows.shape[1])])
