"""torch's ring attention on CPU, through its private templates.

The public context_parallel fails on CPU (the flash operator for CPU has no sharding rule, torch 2.13); the templates
under it are the same for every device and take the operator as an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.tensor.experimental._context_parallel import _attention
from torch.distributed.tensor.experimental._context_parallel._load_balancer import _HeadTailLoadBalancer

from parproof.errors import Unsupported
from parproof.subjects.context_protocol import ContextPlan, Partial

_aten = torch.ops.aten


class ContextAttention:
    """Variants by torch's rotation method: all-to-all is the ring, all-gather the other."""

    def positions(self, plan: ContextPlan, rank: int, world_size: int) -> list[int]:
        """See the protocol; zigzag as torch's own balancer orders it."""
        whole = torch.arange(plan.sequence_length)
        if plan.balance == "zigzag":
            balancer = _HeadTailLoadBalancer(plan.sequence_length, world_size, torch.device("cpu"))
            whole = whole[balancer._generate_indices(restore=False).flatten()]
        return [int(i) for i in whole.chunk(world_size)[rank]]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, plan: ContextPlan, group: ProcessGroup) -> Tensor:
        """See the protocol."""
        _attention.set_rotate_method("alltoall" if plan.variant == "ring" else "allgather")
        _attention._cp_options.enable_load_balance = plan.balance == "zigzag"
        # With its default, float64 would be merged in float32.
        _attention._cp_options.convert_to_f32 = q.dtype != torch.float64
        out: Tensor = _TorchRing.apply(q, k, v, plan.causal, group)  # type: ignore[no-untyped-call]
        return out

    def algorithm(self, plan: ContextPlan) -> str:
        """See the protocol."""
        return f"torch_{plan.variant}"

    def merge(self, parts: Sequence[Partial]) -> Tensor:
        """See the protocol."""
        raise Unsupported("torch has no public merge of softmax parts")


class _TorchRing(torch.autograd.Function):
    """The two templates with the CPU flash operator."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, group: ProcessGroup) -> Tensor:
        out, lse = _attention._templated_ring_attention(
            group, 2, cast(Any, _flash), q, k, v, is_causal=causal
        )[:2]
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.rest = causal, group
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        causal, group = ctx.rest
        made = _attention._templated_ring_attention_backward(
            group,
            2,
            cast(Any, _flash_backward),
            grad_out=gradients[0].contiguous(),
            grad_out_name="grad_out",
            query=q.contiguous(),
            key=k,
            value=v,
            out=out,
            logsumexp=lse,
            is_causal=causal,
        )
        return *made[:3], None, None


def _flash(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, **_: Any) -> Any:
    return _aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout_p=0.0, is_causal=is_causal)


def _flash_backward(
    *,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    is_causal: bool,
) -> Any:
    return _aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, query, key, value, out, logsumexp, 0.0, is_causal
    )
