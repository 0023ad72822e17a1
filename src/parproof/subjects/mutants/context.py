"""Mutants of PAR-CONTEXT-RING: the reference attention with one lie each (the catalogue says which)."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from parproof.errors import InvalidPlan
from parproof.subjects.context_protocol import ContextPlan, Partial
from parproof.subjects.mutants.context_lies import exchange, subjects
from parproof.subjects.reference.context import ContextAttention
from parproof.subjects.reference.context_softmax import Softmax
from parproof.subjects.reference.context_wire import ContextWire

# -- arithmetic ------------------------------------------------------------------------------------------------


class LocalMask(Softmax):
    def allowed(self, queries: Sequence[int], keys: Sequence[int]) -> Tensor:
        start = min(queries) - min(keys)
        return (
            super().allowed(queries, [key + start for key in keys])
            if start > 0
            else super().allowed(queries, keys)
        )


class NoDocuments(Softmax):
    def allowed(self, queries: Sequence[int], keys: Sequence[int]) -> Tensor:
        self._document = torch.zeros_like(self._document)
        return super().allowed(queries, keys)


class StrictlyCausal(Softmax):
    def allowed(self, queries: Sequence[int], keys: Sequence[int]) -> Tensor:
        mask = super().allowed(queries, keys)
        if self.plan.causal and list(queries) != list(keys):
            mask &= torch.tensor(queries).unsqueeze(1) - 1 > torch.tensor(keys).unsqueeze(0)
        return mask


class BalanceMeansCausal(Softmax):
    def allowed(self, queries: Sequence[int], keys: Sequence[int]) -> Tensor:
        mask = super().allowed(queries, keys)
        if self.plan.balance == "zigzag":
            mask = mask & (torch.tensor(keys).unsqueeze(0) <= torch.tensor(queries).unsqueeze(1))
        return mask


class NoPeak(Softmax):
    def partial(self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Partial:
        weights = torch.exp(self.scores(q, k, allowed))
        zero = torch.zeros(weights.shape[:-1], dtype=weights.dtype)
        return Partial(zero, weights.sum(-1), weights @ self.spread(v, q.shape[1]))


class KeepsOldNumerator(Softmax):
    @staticmethod
    def merge(a: Partial, b: Partial) -> Partial:
        made = Softmax.merge(a, b)
        return Partial(made.peak, made.weight, a.value + b.value)


class KeepsOldDenominator(Softmax):
    @staticmethod
    def merge(a: Partial, b: Partial) -> Partial:
        made = Softmax.merge(a, b)
        return Partial(made.peak, a.weight + b.weight, made.value)


class NaNOnEmptyRows(Softmax):
    @staticmethod
    def merge(a: Partial, b: Partial) -> Partial:
        peak = torch.maximum(a.peak, b.peak)
        left, right = torch.exp(a.peak - peak), torch.exp(b.peak - peak)
        return Partial(
            peak,
            a.weight * left + b.weight * right,
            a.value * left.unsqueeze(-1) + b.value * right.unsqueeze(-1),
        )


class AveragesParts(Softmax):
    @staticmethod
    def merge(a: Partial, b: Partial) -> Partial:
        made = Softmax.merge(a, b)
        mean = (
            a.value / a.weight.unsqueeze(-1).clamp_min(1e-300)
            + b.value / b.weight.unsqueeze(-1).clamp_min(1e-300)
        ) / 2
        return Partial(made.peak, made.weight, mean * made.weight.unsqueeze(-1))


class ForgetsDelta(Softmax):
    def block_gradients(self, q: Any, k: Any, v: Any, out: Tensor, lse: Any, d_out: Any, allowed: Any) -> Any:
        return super().block_gradients(q, k, v, torch.zeros_like(out), lse, d_out, allowed)


class ScaleOnceBackward(Softmax):
    def block_gradients(self, q: Any, k: Any, v: Any, out: Any, lse: Any, d_out: Any, allowed: Any) -> Any:
        dq, dk, dv = super().block_gradients(q, k, v, out, lse, d_out, allowed)
        return dq, dk / self.scale, dv


class LocalSoftmaxBackward(Softmax):
    def block_gradients(self, q: Any, k: Any, v: Any, out: Any, lse: Any, d_out: Any, allowed: Any) -> Any:
        local = torch.logsumexp(self.scores(q, k, allowed), dim=-1).nan_to_num(neginf=0.0)
        return super().block_gradients(q, k, v, out, local, d_out, allowed)


class InterleavesHeads(Softmax):
    def spread(self, kv: Tensor, num_heads: int) -> Tensor:
        return kv.to(self.accumulator).repeat(1, num_heads // kv.shape[1], 1, 1)


class FirstSharerOnly(Softmax):
    def gather_heads(self, gradient: Tensor, num_kv_heads: int) -> Tensor:
        return gradient[:, :: gradient.shape[1] // num_kv_heads].contiguous()


class LowPrecisionSums(Softmax):
    def __init__(self, plan: ContextPlan, head_width: int, dtype: torch.dtype) -> None:
        super().__init__(plan, head_width, dtype)
        self.accumulator = torch.float32


# -- exchanges -------------------------------------------------------------------------------------------------


class WrongSource(ContextWire):
    def source(self, step: int) -> int:
        return (self.me + step) % self.p


class OneBlockShort(ContextWire):
    def num_blocks(self) -> int:
        return max(1, self.p - 1)


class LeavesGradientsAway(ContextWire):
    def bring_home(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        return list(gradients)


class SendsTwice(ContextWire):
    def pass_on(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        super().pass_on([tensors[0]])
        return super().pass_on(tensors)


class WorldRanks(ContextWire):
    def pass_on(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return ContextWire(dist.group.WORLD).pass_on(tensors)  # type: ignore[arg-type]


class OwnSliceOnly(ContextWire):
    def sum_and_split_sequence(self, x: Tensor) -> Tensor:
        super().sum_and_split_sequence(x)
        return x.chunk(self.p, dim=2)[self.me].contiguous()


class AllReducesInstead(ContextWire):
    def sum_and_split_sequence(self, x: Tensor) -> Tensor:
        whole = x.contiguous()
        dist.all_reduce(whole, group=self.group)
        return whole.chunk(self.p, dim=2)[self.me].contiguous()


class ReversedGather(ContextWire):
    def gather_sequence(self, x: Tensor) -> Tensor:
        return torch.cat(super().gather_sequence(x).chunk(self.p, dim=2)[::-1], dim=2)


class HeadsFromTheEnd(ContextWire):
    def to_sequence(self, x: Tensor) -> Tensor:
        return torch.cat(super().to_sequence(x).chunk(self.p, dim=1)[::-1], dim=1)


class SpreadsHeadsFirst(ContextAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, plan: ContextPlan, group: dist.ProcessGroup) -> Tensor:
        sharers = q.shape[1] // k.shape[1]
        return super().attend(
            q, k.repeat_interleave(sharers, 1), v.repeat_interleave(sharers, 1), plan, group
        )


# -- layout and refusals ---------------------------------------------------------------------------------------


class CallsItZigzag(ContextAttention):
    def positions(self, plan: ContextPlan, rank: int, world_size: int) -> list[int]:
        named = "contiguous" if plan.balance == "zigzag" else plan.balance
        return super().positions(
            ContextPlan(plan.variant, named, plan.causal, plan.sequence_length), rank, world_size
        )


class OrdersByDocument(ContextAttention):
    def positions(self, plan: ContextPlan, rank: int, world_size: int) -> list[int]:
        if plan.balance != "document_zigzag":
            return super().positions(plan, rank, world_size)
        everyone = [super(OrdersByDocument, self).positions(plan, r, world_size) for r in range(world_size)]
        ends = torch.tensor(plan.document_lengths).cumsum(0).tolist()
        order = sorted(
            ((sum(end <= i for end in ends), r, i) for r, held in enumerate(everyone) for i in held)
        )
        share = len(order) // world_size
        return [i for *_, i in order[rank * share : (rank + 1) * share]]


class DropsTheRemainder(ContextAttention):
    def positions(self, plan: ContextPlan, rank: int, world_size: int) -> list[int]:
        try:
            return super().positions(plan, rank, world_size)
        except InvalidPlan:
            return list(range(plan.sequence_length // world_size))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, plan: ContextPlan, group: dist.ProcessGroup) -> Tensor:
        try:
            return super().attend(q, k, v, plan, group)
        except InvalidPlan:
            return torch.zeros_like(q)


class MeansOverParts(ContextAttention):
    def merge(self, parts: Sequence[Partial]) -> Tensor:
        return super().merge([max(parts, key=lambda p: float(p.weight.sum())), parts[0]])


def _arithmetic(lie: type[Softmax]) -> type[ContextAttention]:
    return type(lie.__name__, (ContextAttention,), {"softmax": lie})


LIES = SimpleNamespace(
    local_mask=_arithmetic(LocalMask),
    no_documents=_arithmetic(NoDocuments),
    strictly_causal=_arithmetic(StrictlyCausal),
    balance_means_causal=_arithmetic(BalanceMeansCausal),
    no_peak=_arithmetic(NoPeak),
    keeps_old_numerator=_arithmetic(KeepsOldNumerator),
    keeps_old_denominator=_arithmetic(KeepsOldDenominator),
    nan_on_empty_rows=_arithmetic(NaNOnEmptyRows),
    averages_parts=_arithmetic(AveragesParts),
    forgets_delta=_arithmetic(ForgetsDelta),
    scale_once_backward=_arithmetic(ScaleOnceBackward),
    local_softmax_backward=_arithmetic(LocalSoftmaxBackward),
    interleaves_heads=_arithmetic(InterleavesHeads),
    first_sharer_only=_arithmetic(FirstSharerOnly),
    low_precision_sums=_arithmetic(LowPrecisionSums),
    wrong_source=exchange(WrongSource),
    one_block_short=exchange(OneBlockShort),
    leaves_gradients_away=exchange(LeavesGradientsAway),
    sends_twice=exchange(SendsTwice),
    world_ranks=exchange(WorldRanks),
    own_slice_only=exchange(OwnSliceOnly),
    all_reduces_instead=exchange(AllReducesInstead),
    reversed_gather=exchange(ReversedGather),
    heads_from_the_end=exchange(HeadsFromTheEnd),
    spreads_heads_first=SpreadsHeadsFirst,
    orders_by_document=OrdersByDocument,
    calls_it_zigzag=CallsItZigzag,
    drops_the_remainder=DropsTheRemainder,
    biggest_part_wins=MeansOverParts,
)

# One subject a lie, by the names of the catalogue.
globals().update(subjects(__name__, LIES))
