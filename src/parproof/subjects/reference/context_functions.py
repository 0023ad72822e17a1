"""The three variants as autograd functions: arithmetic from Softmax, exchanges from ContextWire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from parproof.subjects.reference.context_softmax import Softmax
from parproof.subjects.reference.context_wire import ContextWire


@dataclass(frozen=True)
class Call:
    """What one attention call works with; layout[r] lists the global positions of rank r."""

    softmax: Softmax
    wire: ContextWire
    layout: list[list[int]]

    @property
    def mine(self) -> list[int]:
        """This rank's positions."""
        return self.layout[self.wire.me]

    @property
    def everyone(self) -> list[int]:
        """All positions, in rank order."""
        return [position for part in self.layout for position in part]


def joined(call: Call, prefix: Tensor, keys: Tensor, step: int = 0) -> Tensor:
    """The keys or values of one round, with the replicated ones where they count."""
    return call.wire.join(prefix, keys, step) if prefix.shape[2] else keys


def allowed(call: Call, queries: list[int], positions: list[int], keys: Tensor) -> Tensor:
    """[queries, keys] mask; keys in front of those at `positions` are a prefix, which all queries see."""
    mask = call.softmax.allowed(queries, positions)
    return torch.cat([mask.new_ones(len(queries), keys.shape[2] - len(positions)), mask], dim=1)


def parted(gradient: Tensor, prefix: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Transpose of joined: (gradient of the prefix, zero in a round without it; gradient of the keys)."""
    length = keys.shape[2]
    own = gradient[:, :, gradient.shape[2] - length :]
    if gradient.shape[2] == length:
        return torch.zeros_like(prefix, dtype=gradient.dtype), own
    return gradient[:, :, : prefix.shape[2]], own


class RingAttention(torch.autograd.Function):
    """Forward p−1 rounds of K and V; backward p−1 rounds of K and V and p rounds of dK and dV."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, prefix_k: Tensor, prefix_v: Tensor, call: Call
    ) -> Tensor:
        """Merge one partial softmax a round."""
        softmax, wire = call.softmax, call.wire
        keys, values = k, v
        merged = None
        for step in range(wire.num_blocks()):
            if step:
                keys, values = wire.pass_on([keys, values])
            seen_k, seen_v = joined(call, prefix_k, keys, step), joined(call, prefix_v, values, step)
            mask = allowed(call, call.mine, call.layout[wire.source(step)], seen_k)
            part = softmax.partial(q, seen_k, seen_v, mask)
            merged = part if merged is None else softmax.merge(merged, part)
        assert merged is not None
        out, lse = softmax.finish(merged)
        ctx.save_for_backward(q, k, v, prefix_k, prefix_v, out, lse)
        ctx.call = call
        return out.to(q.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """dK and dV are added up where their K/V are, and one more round brings them home."""
        *inputs, out, lse = ctx.saved_tensors
        q, keys, values, prefix_k, prefix_v = inputs
        call: Call = ctx.call
        dq, dk, dv, *d_prefix = (torch.zeros_like(t, dtype=call.softmax.accumulator) for t in inputs)
        for step in range(call.wire.num_blocks()):
            if step:
                keys, values = call.wire.pass_on([keys, values])
                dk, dv = call.wire.pass_on([dk, dv])
            seen_k, seen_v = joined(call, prefix_k, keys, step), joined(call, prefix_v, values, step)
            mask = allowed(call, call.mine, call.layout[call.wire.source(step)], seen_k)
            added = call.softmax.block_gradients(q, seen_k, seen_v, out, lse, gradients[0], mask)
            parts = parted(added[1], prefix_k, keys), parted(added[2], prefix_v, values)
            dq, dk, dv = dq + added[0], dk + parts[0][1], dv + parts[1][1]
            d_prefix = [total + part[0] for total, part in zip(d_prefix, parts, strict=True)]
        dk, dv = call.wire.bring_home([dk, dv])
        made = zip((dq, dk, dv, *d_prefix), inputs, strict=True)
        return *(t.to(like.dtype) for t, like in made), None


class AllGatherAttention(torch.autograd.Function):
    """Forward: one all_gather each of K and V. Backward: one reduce_scatter each of dK and dV."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, prefix_k: Tensor, prefix_v: Tensor, call: Call
    ) -> Tensor:
        """Attend to all keys at once."""
        every_k = joined(call, prefix_k, call.wire.gather_sequence(k))
        every_v = joined(call, prefix_v, call.wire.gather_sequence(v))
        mask = allowed(call, call.mine, call.everyone, every_k)
        out, lse = call.softmax.finish(call.softmax.partial(q, every_k, every_v, mask))
        ctx.save_for_backward(q, every_k, every_v, prefix_k, out, lse, mask)
        ctx.call = call
        return out.to(q.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Every rank has a share of every key's gradient; sum the shares at the key's owner."""
        q, k, v, prefix, out, lse, mask = ctx.saved_tensors
        call: Call = ctx.call
        dq, *added = call.softmax.block_gradients(q, k, v, out, lse, gradients[0], mask)
        sequence = k[:, :, : len(call.everyone)]
        parts = [parted(t, prefix, sequence) for t in added]
        dk, dv = (call.wire.sum_and_split_sequence(own) for _, own in parts)
        return *(t.to(q.dtype) for t in (dq, dk, dv, parts[0][0], parts[1][0])), None


class UlyssesAttention(torch.autograd.Function):
    """all_to_all of q, k, v to head shards, whole-sequence attention, all_to_all back; the transpose backward."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, prefix_k: Tensor, prefix_v: Tensor, call: Call
    ) -> Tensor:
        """Positions stay in the order of the layout, so the mask is by global position."""
        wire = call.wire
        mine = wire.own_heads(prefix_k), wire.own_heads(prefix_v)
        heads_q, heads_k, heads_v = wire.to_heads(q), wire.to_heads(k), wire.to_heads(v)
        heads = heads_q, joined(call, mine[0], heads_k), joined(call, mine[1], heads_v)
        mask = allowed(call, call.everyone, call.everyone, heads[1])
        out, lse = call.softmax.finish(call.softmax.partial(*heads, mask))
        ctx.save_for_backward(*heads, prefix_k, out, lse, mask)
        ctx.call = call
        return wire.to_sequence(out.to(q.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """The transposed exchanges; heads of the prefix that other ranks hold get nothing here."""
        q, k, v, prefix, out, lse, mask = ctx.saved_tensors
        wire = ctx.call.wire
        made = ctx.call.softmax.block_gradients(q, k, v, out, lse, wire.to_heads(gradients[0]), mask)
        mine, sequence = wire.own_heads(prefix), k[:, :, : len(ctx.call.everyone)]
        parts = [parted(t, mine, sequence) for t in made[1:]]
        dq, dk, dv = (wire.to_sequence(t.to(q.dtype)) for t in (made[0], parts[0][1], parts[1][1]))
        return dq, dk, dv, *(wire.among_all_heads(part[0].to(q.dtype)) for part in parts), None


FUNCTIONS = {"ring": RingAttention, "all_gather": AllGatherAttention, "ulysses": UlyssesAttention}
