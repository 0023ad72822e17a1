"""torch's context parallelism on CPU: its public context_parallel where it is right, else the templates under it.

On CPU (torch 2.13) the public one goes forward and backward with SDPBackend.MATH alone, and there it is no ring:
DTensor gathers K and V, forward and again backward, and scatters the sums of their gradients, whichever rotation is
set. It is right without a mask and with an explicit one (documents). is_causal fails: the MATH backend mixes tensors
and DTensors. The flash operator for CPU has no sharding rule: no causal flag, no backward, and a forward pass whose
first call searches for half a minute. So a ring, and all that is causal in one document, goes through the ring
templates, which are the same for every device and take the operator as an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._context_parallel import _attention
from torch.distributed.tensor.experimental._context_parallel._load_balancer import (
    _HeadTailLoadBalancer,
    _PerDocumentHeadTailLoadBalancer,
)
from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module
from torch.nn.attention import SDPBackend, sdpa_kernel

from parproof.errors import Unsupported
from parproof.subjects.context_protocol import NORM_EPS, ContextPlan, Partial

_aten = torch.ops.aten


class ContextAttention:
    """Variants by torch's rotation method: all-to-all is the ring, all-gather the other."""

    def positions(self, plan: ContextPlan, rank: int, world_size: int) -> list[int]:
        """See the protocol; as torch's own balancers order it, each rank a chunk."""
        whole, cpu = torch.arange(plan.sequence_length), torch.device("cpu")
        if plan.balance == "zigzag":
            balancer = _HeadTailLoadBalancer(plan.sequence_length, world_size, cpu)
            whole = whole[balancer._generate_indices(restore=False).flatten()]
        if plan.balance == "document_zigzag":
            whole = self._by_document(plan, world_size)
        return [int(i) for i in whole.chunk(world_size)[rank]]

    def _by_document(self, plan: ContextPlan, world_size: int) -> Tensor:
        lengths = [list(plan.document_lengths)]
        balancer = _PerDocumentHeadTailLoadBalancer(lengths, world_size, torch.device("cpu"))
        return balancer._generate_indices(restore=False).flatten()

    def attend(self, q: Tensor, k: Tensor, v: Tensor, plan: ContextPlan, group: ProcessGroup) -> Tensor:
        """See the protocol."""
        _attention._cp_options.enable_load_balance = plan.balance == "zigzag"
        if _is_public(plan):
            return self._attend_publicly(q, k, v, plan, group)
        _attention.set_rotate_method("alltoall" if plan.variant == "ring" else "allgather")
        # With its default, float64 would be merged in float32.
        _attention._cp_options.convert_to_f32 = q.dtype != torch.float64
        out: Tensor = _TorchRing.apply(q, k, v, plan.causal, group)  # type: ignore[no-untyped-call]
        return out

    def sharing(
        self, shared: Mapping[str, Tensor], plan: ContextPlan, group: ProcessGroup
    ) -> NormedAttention:
        """See the protocol; norms only."""
        return NormedAttention(self, shared, plan, group)

    def algorithm(self, plan: ContextPlan) -> str:
        """See the protocol."""
        return "torch_public" if _is_public(plan) else f"torch_{plan.variant}"

    def merge(self, parts: Sequence[Partial]) -> Tensor:
        """See the protocol."""
        raise Unsupported("torch has no public merge of softmax parts")

    def _attend_publicly(
        self, q: Tensor, k: Tensor, v: Tensor, plan: ContextPlan, group: ProcessGroup
    ) -> Tensor:
        """context_parallel splits whole buffers; q, k and v are split already, so the positions are its buffer."""
        # context_parallel knows the balancer of whole sequences; what another one orders, the caller orders.
        each = plan.balance == "document_zigzag"
        mine = self._by_document(plan, group.size()) if each else torch.arange(plan.sequence_length)
        mesh = DeviceMesh.from_group(group, q.device.type)
        with context_parallel(mesh, buffers=[mine], buffer_seq_dims=[0]), sdpa_kernel(SDPBackend.MATH):
            mask = self._mask(mine, plan, group.size()) if plan.document_lengths else None
            if mask is not None:
                mask = mask.expand(*q.shape[:2], -1, -1)
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, enable_gqa=q.shape[1] != k.shape[1]
            )

    def _mask(self, mine: Tensor, plan: ContextPlan, world_size: int) -> Tensor:
        """Which keys, in the order in which ranks hold them, the queries at these positions see."""
        held = [self.positions(plan, rank, world_size) for rank in range(world_size)]
        keys = torch.tensor(held).flatten()
        lengths = torch.tensor(plan.document_lengths)
        document = torch.arange(len(lengths)).repeat_interleave(lengths)
        seen = document[mine].unsqueeze(1) == document[keys].unsqueeze(0)
        return seen & (mine.unsqueeze(1) >= keys.unsqueeze(0)) if plan.causal else seen


class NormedAttention:
    """torch.nn.RMSNorm under SequenceParallel: its weights are replicated DTensors, their gradients partial sums."""

    def __init__(
        self,
        attention: ContextAttention,
        shared: Mapping[str, Tensor],
        plan: ContextPlan,
        group: ProcessGroup,
    ) -> None:
        self.attention, self.plan, self.group = attention, plan, group
        self.mesh = DeviceMesh.from_group(group, "cpu")
        self.weights = {name: shared[name] for name in ("q_weight", "k_weight")}
        self.norms: dict[str, torch.nn.RMSNorm] = {}

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See the protocol."""
        q, k = self._normed("q_weight", q), self._normed("k_weight", k)
        return self.attention.attend(q, k, v, self.plan, self.group)

    def _normed(self, name: str, x: Tensor) -> Tensor:
        each_head = self.weights[name].numel() == x.shape[-1]
        if name not in self.norms:
            self.norms[name] = self._module(self.weights[name], each_head)
        norm = self.norms[name]
        if each_head:
            return cast(Tensor, norm(x))
        made = cast(Tensor, norm(x.transpose(1, 2).flatten(2)))
        return cast(Tensor, made.unflatten(2, x.shape[1::2]).transpose(1, 2))

    def _module(self, weight: Tensor, each_head: bool) -> torch.nn.RMSNorm:
        norm = torch.nn.RMSNorm(weight.numel(), eps=NORM_EPS, dtype=weight.dtype)
        norm.weight.data.copy_(weight)
        style = SequenceParallel(sequence_dim=2 if each_head else 1, use_local_output=True)
        parallelize_module(norm, self.mesh, style)
        return norm

    def gradients(self) -> dict[str, Tensor]:
        """See the protocol: DTensor sums what its ranks hold a part of."""
        return {name: cast(Any, norm.weight.grad).full_tensor() for name, norm in self.norms.items()}


def _is_public(plan: ContextPlan) -> bool:
    """Does the public context_parallel do it on CPU?"""
    return plan.variant == "all_gather" and (not plan.causal or bool(plan.document_lengths))


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
