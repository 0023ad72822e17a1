"""Mutants of PAR-TENSOR-LAYOUT: the reference with one lie each (the catalogue says which)."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from parproof.errors import InvalidPlan
from parproof.subjects.protocol import Subject
from parproof.subjects.reference.tensor import TensorParallel
from parproof.subjects.reference.tensor_attention import Attention, plan_attention
from parproof.subjects.reference.tensor_layers import (
    ColumnLinear,
    Held,
    Mlp,
    RowLinear,
    SequenceBlock,
    whole_index,
    with_range,
)
from parproof.subjects.reference.tensor_vocabulary import VocabularyEmbedding, VocabularyLoss
from parproof.subjects.reference.tensor_wire import Bounds, Regions, crossing, same
from parproof.subjects.tensor_protocol import HeadPlan, Piece

KINDS = types.SimpleNamespace()


def _mutant(name: str, **lies: Any) -> Subject:
    setattr(KINDS, name, type(name, (TensorParallel,), lies))
    return Subject(name=name, mechanisms={"tensor": f"{__name__}:KINDS.{name}"})


def _never_gathered(self: Any, params: Mapping[str, Tensor], *, gather_output: bool, group: Any) -> Any:
    return TensorParallel.column_linear(self, params, gather_output=False, group=group)


# -- linear layers and their crossings ----------------------------------------------------------------------


class _RowUnreduced(RowLinear):
    def finish(self, summand: Tensor) -> Tensor:
        return summand + self.weight("bias")


class _RowReducedTwice(RowLinear):
    def finish(self, summand: Tensor) -> Tensor:
        return self.wire.leave(self.wire.leave(summand)) + self.weight("bias")


class _RowBiasEverywhere(RowLinear):
    def finish(self, summand: Tensor) -> Tensor:
        return self.wire.leave(summand + self.weight("bias"))


class _RowDroppedBiasGradient(RowLinear):
    def finish(self, summand: Tensor) -> Tensor:
        bias = self.weight("bias")
        return self.wire.leave(summand + (bias if self.wire.rank == 0 else 0 * bias))


class _ColumnLocalInputGradient(ColumnLinear):
    def __init__(self, wire: Regions, params: Mapping[str, Tensor], gather_output: bool) -> None:
        super().__init__(wire, params, gather_output)
        self.wire.enter = same  # type: ignore[method-assign]


class _Reversed(Regions):
    def gather(self, x: Tensor, dim: int, bounds: Bounds) -> Tensor:
        parts = [super(_Reversed, self).gather(x, dim, bounds).narrow(dim, a, b - a) for a, b in bounds]
        return torch.cat(parts[::-1], dim)


class _SumsTheGradientAgain(Regions):
    def leave(self, x: Tensor) -> Tensor:
        return crossing(x, self.sum, self.sum)


class _LastRowsForNobody(Regions):
    def bounds(self, size: int) -> list[tuple[int, int]]:
        small = size // self.size
        return [(rank * small, (rank + 1) * small) for rank in range(self.size)]

    def split(self, x: Tensor, dim: int, bounds: Bounds) -> Tensor:
        end = bounds[-1][1]
        return super().split(x.narrow(dim, 0, end), dim, bounds)


class _WorldRank(Regions):
    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__(group)
        self.rank = dist.get_rank() % self.size


class _LeavesStridedMemoryAlone(Regions):
    def _reduced(self, x: Tensor, op: Any) -> Tensor:
        reduced = super()._reduced(x, op)
        return reduced if x.is_contiguous() else x.detach().clone()


class _Bfloat16(Regions):
    def sum(self, x: Tensor) -> Tensor:
        return super().sum(x.bfloat16()).to(x.dtype)


class _GathersToScatter(Regions):
    def scatter_sum(self, x: Tensor, dim: int, bounds: Bounds) -> Tensor:
        return self.take(self.sum(x), dim, bounds)


class _ScattersWithoutSum(Regions):
    def enter_from_parts(self, x: Tensor, dim: int, bounds: Bounds) -> Tensor:
        return crossing(x, lambda v: self.gather(v, dim, bounds), lambda g: self.take(g, dim, bounds))


# -- MLP -----------------------------------------------------------------------------------------------------


class _CutsAcrossTheGate(Mlp):
    def keep_gated(self, name: str, whole: Tensor) -> None:
        if whole.shape[0] % (2 * self.wire.size):
            super().keep_gated(name, whole)
        else:
            self.keep_split(name, whole, 0)


class _OneMoreReduce(Mlp):
    def summand(self, x: Tensor) -> Tensor:
        self.wire.sum(x)
        return super().summand(x)


class _KeepsTheWhole(Mlp):
    def keep(self, name: str, whole: Tensor, parts: Any = None, *, replicas: int = 0) -> None:
        super().keep(name, whole, parts, replicas=replicas)
        held = self.held[name]
        if len(held.parts) == 1:
            view = whole.clone()[tuple(slice(a, b) for a, b in held.parts[0])]
            self.held[name] = Held(view.requires_grad_(), held.parts, held.replicas)


# -- attention -----------------------------------------------------------------------------------------------


class _TilesTheHeads(Attention):
    def for_queries(self, k: Tensor, v: Tensor, q_heads: int) -> tuple[Tensor, Tensor]:
        times = q_heads // k.shape[1]
        return k.repeat(1, times, 1, 1), v.repeat(1, times, 1, 1)


class _DealsKvHeadsRound(Attention):
    def kv_number(self, rank: int) -> int:
        return rank % (self.wire.size // self.plan.kv_replication)


class _KeepsSharedGradients(Attention):
    def shared(self, name: str) -> Tensor | None:
        return self.optional(name)


class _ScalesByLocalWidth(Attention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(q / q.shape[1] ** 0.5, k, v)


def _plan_anything(self: Any, q_heads: int, kv_heads: int, ranks: int) -> HeadPlan:
    try:
        return plan_attention(q_heads, kv_heads, ranks)
    except InvalidPlan:
        ranks = max(ranks, 1)
        return HeadPlan(q_heads // ranks, "shard", max(kv_heads // ranks, 1), 1)


def _plan_never_shares(self: Any, q_heads: int, kv_heads: int, ranks: int) -> HeadPlan:
    plan = plan_attention(q_heads, kv_heads, ranks)
    if plan.kv_mode == "replicate":
        raise InvalidPlan(f"{kv_heads} key/value heads over {ranks} ranks")
    return plan


# -- vocabulary ----------------------------------------------------------------------------------------------


class _EqualOffsets(VocabularyEmbedding):
    def __init__(self, wire: Regions, params: Mapping[str, Tensor]) -> None:
        super().__init__(wire, params)
        length = self.stop - self.start
        self.start = wire.rank * (params["weight"].shape[0] // wire.size)
        self.stop = self.start + length


class _RepeatsTheLastRow(VocabularyEmbedding):
    def keep_split(self, name: str, whole: Tensor, dim: int) -> None:
        if whole.shape[dim] >= self.wire.size:
            return super().keep_split(name, whole, dim)
        last = whole.shape[dim] - 1
        rows = [(min(rank, last), min(rank, last) + 1) for rank in range(self.wire.size)]
        self.wire.bounds = lambda size: rows  # type: ignore[method-assign]
        return self.keep(name, whole, [with_range(whole_index(whole.shape), dim, rows[self.wire.rank])])


class _UnmaskedRows(VocabularyEmbedding):
    def masked(self, rows: Tensor, mine: Tensor) -> Tensor:
        return rows


class _LocalMax(VocabularyLoss):
    def largest(self, x: Tensor) -> Tensor:
        return x.detach().amax(-1)


class _NoMax(VocabularyLoss):
    def largest(self, x: Tensor) -> Tensor:
        return self.wire.max(torch.zeros_like(x[:, 0]))


class _CountsIgnored(VocabularyLoss):
    def counting(self, targets: Tensor) -> Tensor:
        return torch.ones_like(targets, dtype=torch.bool)


class _IgnoresNegativesOnly(VocabularyLoss):
    def counting(self, targets: Tensor) -> Tensor:
        return targets >= 0


# -- sequence parallel ---------------------------------------------------------------------------------------


class _LocalNormGradient(SequenceBlock):
    def shared(self, name: str) -> Tensor:
        return self.weight(name) if name.startswith("norm.") else super().shared(name)


class _LocalBiasGradient(SequenceBlock):
    def shared(self, name: str) -> Tensor:
        return self.weight(name) if name == "down.bias" else super().shared(name)


class _ScattersTheWidth(SequenceBlock):
    def __call__(self, x: Tensor, *extra: Tensor) -> Piece:
        right = super().__call__(x)
        gathered = self.wire.gather_parts(right.local, self.dim, self.wire.bounds(self.tokens))
        return Piece(self.wire.split(gathered, -1, self.wire.bounds(gathered.shape[-1])), right.index)


class _NormalisesTheWhole(SequenceBlock):
    def normalise(self, x: Tensor) -> Tensor:
        if self.norm == "rms":
            return super().normalise(x)
        return functional.layer_norm(x, x.shape[1:]) * self.shared("norm.weight") + self.shared("norm.bias")


row_unreduced = _mutant("row_unreduced", row_type=_RowUnreduced)
row_reduced_twice = _mutant("row_reduced_twice", row_type=_RowReducedTwice)
row_bias_on_every_rank = _mutant("row_bias_on_every_rank", row_type=_RowBiasEverywhere)
row_bias_gradient_on_one_rank = _mutant("row_bias_gradient_on_one_rank", row_type=_RowDroppedBiasGradient)
column_input_gradient_local = _mutant("column_input_gradient_local", column_type=_ColumnLocalInputGradient)
never_gathers = _mutant("never_gathers", column_linear=_never_gathered)
gathers_in_reverse = _mutant("gathers_in_reverse", wire_type=_Reversed)
sums_the_gradient_again = _mutant("sums_the_gradient_again", wire_type=_SumsTheGradientAgain)
last_rows_for_nobody = _mutant("last_rows_for_nobody", wire_type=_LastRowsForNobody)
world_rank_for_group_rank = _mutant("world_rank_for_group_rank", wire_type=_WorldRank)
strided_memory_unreduced = _mutant("strided_memory_unreduced", wire_type=_LeavesStridedMemoryAlone)
reduces_in_bfloat16 = _mutant("reduces_in_bfloat16", wire_type=_Bfloat16)
sequence_by_all_reduce = _mutant("sequence_by_all_reduce", wire_type=_GathersToScatter)
scatters_without_sum = _mutant("scatters_without_sum", wire_type=_ScattersWithoutSum)
cuts_across_the_gate = _mutant("cuts_across_the_gate", mlp_type=_CutsAcrossTheGate)
one_more_reduce = _mutant("one_more_reduce", mlp_type=_OneMoreReduce)
keeps_the_whole_weight = _mutant("keeps_the_whole_weight", mlp_type=_KeepsTheWhole)
tiles_the_kv_heads = _mutant("tiles_the_kv_heads", attention_type=_TilesTheHeads)
deals_kv_heads_round = _mutant("deals_kv_heads_round", attention_type=_DealsKvHeadsRound)
shared_kv_gradient_local = _mutant("shared_kv_gradient_local", attention_type=_KeepsSharedGradients)
scales_by_local_heads = _mutant("scales_by_local_heads", attention_type=_ScalesByLocalWidth)
plans_anything = _mutant("plans_anything", plan_attention=_plan_anything)
plans_no_sharing = _mutant("plans_no_sharing", plan_attention=_plan_never_shares)
equal_vocabulary_offsets = _mutant("equal_vocabulary_offsets", embedding_type=_EqualOffsets)
last_row_on_idle_ranks = _mutant("last_row_on_idle_ranks", embedding_type=_RepeatsTheLastRow)
foreign_ids_unmasked = _mutant("foreign_ids_unmasked", embedding_type=_UnmaskedRows)
loss_max_local = _mutant("loss_max_local", loss_type=_LocalMax)
loss_without_max = _mutant("loss_without_max", loss_type=_NoMax)
ignored_targets_count = _mutant("ignored_targets_count", loss_type=_CountsIgnored)
ignores_negative_ids_only = _mutant("ignores_negative_ids_only", loss_type=_IgnoresNegativesOnly)
norm_gradient_local = _mutant("norm_gradient_local", block_type=_LocalNormGradient)
late_bias_gradient_local = _mutant("late_bias_gradient_local", block_type=_LocalBiasGradient)
scatters_the_width = _mutant("scatters_the_width", block_type=_ScattersTheWidth)
normalises_over_tokens = _mutant("normalises_over_tokens", block_type=_NormalisesTheWhole)
