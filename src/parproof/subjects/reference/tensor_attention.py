"""Attention with its heads split over a group: MHA, GQA and MQA.

Legend: q, kv heads; t ranks; D head width; B batch, S tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from parproof.errors import InvalidPlan
from parproof.subjects.reference.tensor_layers import Layer, whole_index, with_range
from parproof.subjects.reference.tensor_wire import Regions
from parproof.subjects.tensor_protocol import HeadPlan, Piece


def plan_attention(q_heads: int, kv_heads: int, ranks: int) -> HeadPlan:
    """Every rank gets whole heads; a KV head may have to live on several ranks.

    Errors  InvalidPlan when a head would have to be cut, or a number is not positive
    """
    asked = f"{q_heads} query and {kv_heads} key/value heads over {ranks} ranks"
    if min(q_heads, kv_heads, ranks) < 1:
        raise InvalidPlan(asked, expected="positive numbers")
    if q_heads % kv_heads:
        raise InvalidPlan(asked, expected="query heads a multiple of key/value heads")
    if q_heads % ranks:
        raise InvalidPlan(asked, expected="query heads a multiple of the ranks")
    if kv_heads % ranks == 0:
        return HeadPlan(q_heads // ranks, "shard", kv_heads // ranks, 1)
    if ranks % kv_heads == 0:
        return HeadPlan(q_heads // ranks, "replicate", 1, ranks // kv_heads)
    raise InvalidPlan(asked, expected="key/value heads a multiple or a divisor of the ranks")


class Attention(Layer):
    """Causal attention: q, k, v by columns, o by rows, in whole heads.

    Cost  forward: all_reduce of y; backward: all_reduce of dx, and of the gradient of each replicated K, V parameter
          over the ranks that share the head
    """

    def __init__(
        self, wire: Regions, params: Mapping[str, Tensor], q_heads: int, kv_heads: int, plan: HeadPlan
    ) -> None:
        super().__init__(wire)
        self.plan = plan
        self.head_width = params["q.weight"].shape[0] // q_heads
        self.sharers = self.sharing_ranks(wire, plan)
        mine = {"q": self.rows(plan.q_heads_per_rank, wire.rank)}
        mine["k"] = mine["v"] = self.rows(plan.kv_heads_per_rank, self.kv_number(wire.rank))
        for name, whole in params.items():
            index = whole_index(whole.shape)
            projection, kind = name.split(".")
            if projection in mine:
                replicas = 1 if projection == "q" else plan.kv_replication
                self.keep(name, whole, [with_range(index, 0, mine[projection])], replicas=replicas)
            elif kind == "weight":
                self.keep(name, whole, [with_range(index, 1, mine["q"])])
            else:
                self.keep(name, whole)

    def kv_number(self, rank: int) -> int:
        """Which block of KV heads a rank holds: neighbours share."""
        return rank // self.plan.kv_replication

    def rows(self, heads: int, number: int) -> tuple[int, int]:
        """Rows of a projection's weight that make a rank's heads."""
        length = heads * self.head_width
        return number * length, (number + 1) * length

    def sharing_ranks(self, wire: Regions, plan: HeadPlan) -> Regions | None:
        """The ranks that hold the same KV head, or None where nobody shares."""
        if plan.kv_replication == 1:
            return None
        if plan.kv_replication == wire.size:
            return wire
        members = dist.get_process_group_ranks(wire.group)
        blocks = [members[i : i + plan.kv_replication] for i in range(0, wire.size, plan.kv_replication)]
        # Only the members make a group: other groups of the world may not be here.
        mine = blocks[wire.rank // plan.kv_replication]
        return type(wire)(dist.new_group(mine, use_local_synchronization=True))

    def shared(self, name: str) -> Tensor | None:
        """A K or V parameter; where ranks share it, their gradients add up."""
        if name not in self.held:
            return None
        return self.sharers.enter(self.weight(name)) if self.sharers else self.weight(name)

    def __call__(self, x: Tensor, *extra: Tensor) -> Piece:
        """Whole x [B, S, width] in, whole y out."""
        x = self.wire.enter(x)
        q = self.heads(functional.linear(x, self.weight("q.weight"), self.optional("q.bias")))
        k = self.heads(functional.linear(x, self.shared("k.weight"), self.shared("k.bias")))  # type: ignore[arg-type]
        v = self.heads(functional.linear(x, self.shared("v.weight"), self.shared("v.bias")))  # type: ignore[arg-type]
        mixed = self.attend(q, *self.for_queries(k, v, q.shape[1])).transpose(1, 2).flatten(2)
        y = self.wire.leave(functional.linear(mixed, self.weight("o.weight")))
        bias = self.optional("o.bias")
        y = y if bias is None else y + bias
        return Piece(y, whole_index(y.shape))

    def heads(self, x: Tensor) -> Tensor:
        """[B, S, heads*D] → [B, heads, S, D]."""
        return x.reshape(*x.shape[:2], -1, self.head_width).transpose(1, 2)

    def for_queries(self, k: Tensor, v: Tensor, q_heads: int) -> tuple[Tensor, Tensor]:
        """Repeat each KV head for the block of query heads that uses it."""
        times = q_heads // k.shape[1]
        return k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """softmax(q kᵀ / √D, causal) v, by head."""
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.head_width)
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        weights: Tensor = scores.masked_fill(future, float("-inf")).softmax(-1)
        return weights @ v
