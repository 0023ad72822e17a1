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


class RingAttention(torch.autograd.Function):
    """Forward p−1 rounds of K and V; backward p−1 rounds of K and V and p rounds of dK and dV."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Merge one partial softmax a round."""
        softmax, wire = call.softmax, call.wire
        keys, values = k, v
        merged = None
        for step in range(wire.num_blocks()):
            if step:
                keys, values = wire.pass_on([keys, values])
            allowed = softmax.allowed(call.mine, call.layout[wire.source(step)])
            part = softmax.partial(q, keys, values, allowed)
            merged = part if merged is None else softmax.merge(merged, part)
        assert merged is not None
        out, lse = softmax.finish(merged)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.call = call
        return out.to(q.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """dK and dV are added up where their K/V are, and one more round brings them home."""
        q, k, v, out, lse = ctx.saved_tensors
        softmax, wire = ctx.call.softmax, ctx.call.wire
        dq, dk, dv = (torch.zeros_like(t, dtype=softmax.accumulator) for t in (q, k, v))
        keys, values = k, v
        for step in range(wire.num_blocks()):
            if step:
                keys, values = wire.pass_on([keys, values])
                dk, dv = wire.pass_on([dk, dv])
            allowed = softmax.allowed(ctx.call.mine, ctx.call.layout[wire.source(step)])
            added = softmax.block_gradients(q, keys, values, out, lse, gradients[0], allowed)
            dq, dk, dv = dq + added[0], dk + added[1], dv + added[2]
        dk, dv = wire.bring_home([dk, dv])
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None


class AllGatherAttention(torch.autograd.Function):
    """Forward: one all_gather each of K and V. Backward: one reduce_scatter each of dK and dV."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Attend to all keys at once."""
        every_k, every_v = call.wire.gather_sequence(k), call.wire.gather_sequence(v)
        allowed = call.softmax.allowed(call.mine, call.everyone)
        out, lse = call.softmax.finish(call.softmax.partial(q, every_k, every_v, allowed))
        ctx.save_for_backward(q, every_k, every_v, out, lse, allowed)
        ctx.call = call
        return out.to(q.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Every rank has a share of every key's gradient; sum the shares at the key's owner."""
        q, k, v, out, lse, allowed = ctx.saved_tensors
        dq, dk, dv = ctx.call.softmax.block_gradients(q, k, v, out, lse, gradients[0], allowed)
        dk, dv = (ctx.call.wire.sum_and_split_sequence(t) for t in (dk, dv))
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None


class UlyssesAttention(torch.autograd.Function):
    """all_to_all of q, k, v to head shards, whole-sequence attention, all_to_all back; the transpose backward."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, call: Call) -> Tensor:
        """Positions stay in the order of the layout, so the mask is by global position."""
        heads = call.wire.to_heads(q), call.wire.to_heads(k), call.wire.to_heads(v)
        allowed = call.softmax.allowed(call.everyone, call.everyone)
        out, lse = call.softmax.finish(call.softmax.partial(*heads, allowed))
        ctx.save_for_backward(*heads, out, lse, allowed)
        ctx.call = call
        return call.wire.to_sequence(out.to(q.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """The transposed exchanges."""
        q, k, v, out, lse, allowed = ctx.saved_tensors
        wire = ctx.call.wire
        made = ctx.call.softmax.block_gradients(q, k, v, out, lse, wire.to_heads(gradients[0]), allowed)
        dq, dk, dv = (wire.to_sequence(t.to(like.dtype)) for t, like in zip(made, (q, k, v), strict=True))
        return dq, dk, dv, None


FUNCTIONS = {"ring": RingAttention, "all_gather": AllGatherAttention, "ulysses": UlyssesAttention}
