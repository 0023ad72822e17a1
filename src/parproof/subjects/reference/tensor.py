"""Tensor parallelism from first principles: parts of weights, autograd crossings, plain collectives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torch import Tensor
from torch.distributed import ProcessGroup

from parproof.errors import InvalidPlan
from parproof.subjects.reference.tensor_attention import Attention, plan_attention
from parproof.subjects.reference.tensor_layers import ColumnLinear, Layer, Mlp, RowLinear, SequenceBlock
from parproof.subjects.reference.tensor_layout import Layouts
from parproof.subjects.reference.tensor_vocabulary import VocabularyEmbedding, VocabularyLoss
from parproof.subjects.tensor_protocol import HeadPlan

ACTIVATIONS = ("gelu", "relu", "swiglu", "geglu")


class TensorParallel(Layouts):
    """See parproof.subjects.tensor_protocol.TensorParallel. Unequal parts differ by at most one row.

    Errors  InvalidPlan where a rank would get nothing, a head would be cut, or an activation is not known
    """

    column_type: type[ColumnLinear] = ColumnLinear
    row_type: type[RowLinear] = RowLinear
    mlp_type: type[Mlp] = Mlp
    attention_type: type[Attention] = Attention
    embedding_type: type[VocabularyEmbedding] = VocabularyEmbedding
    loss_type: type[VocabularyLoss] = VocabularyLoss
    block_type: type[SequenceBlock] = SequenceBlock

    def column_linear(
        self, params: Mapping[str, Tensor], *, gather_output: bool, group: ProcessGroup
    ) -> ColumnLinear:
        """Split along out."""
        return self.column_type(self.wire_type(group), params, gather_output)

    def row_linear(
        self, params: Mapping[str, Tensor], *, input_is_split: bool, group: ProcessGroup
    ) -> RowLinear:
        """Split along in."""
        return self.row_type(self.wire_type(group), params, input_is_split)

    def mlp(self, params: Mapping[str, Tensor], *, activation: str, group: ProcessGroup) -> Mlp:
        """Column, activation, row."""
        return self.mlp_type(self.wire_type(group), params, _known(activation))

    def attention(
        self, params: Mapping[str, Tensor], *, q_heads: int, kv_heads: int, group: ProcessGroup
    ) -> Attention:
        """Whole heads on every rank."""
        wire = self.wire_type(group)
        plan = self.plan_attention(q_heads, kv_heads, wire.size)
        return self.attention_type(wire, params, q_heads, kv_heads, plan)

    def embedding(self, params: Mapping[str, Tensor], *, group: ProcessGroup) -> VocabularyEmbedding:
        """Split along the vocabulary."""
        return self.embedding_type(self.wire_type(group), params)

    def vocabulary_loss(self, *, vocabulary: int, ignore_index: int, group: ProcessGroup) -> VocabularyLoss:
        """Logits split along the vocabulary."""
        return self.loss_type(self.wire_type(group), vocabulary, ignore_index)

    def sequence_block(
        self, params: Mapping[str, Tensor], *, norm: str, activation: str, group: ProcessGroup
    ) -> SequenceBlock:
        """Norm on a part of the tokens, MLP on all."""
        return self.block_type(self.wire_type(group), params, norm, _known(activation))

    def plan_attention(self, q_heads: int, kv_heads: int, ranks: int) -> HeadPlan:
        """Sharded, replicated or refused."""
        return plan_attention(q_heads, kv_heads, ranks)

    def gradient_norm(self, layers: Sequence[Layer]) -> float:
        """Layer by layer, each over its own group."""
        return math.sqrt(sum(layer.gradient_norm_squared() for layer in layers))


def _known(activation: str) -> str:
    if activation not in ACTIVATIONS:
        raise InvalidPlan(f"activation {activation!r}", expected=f"one of {', '.join(ACTIVATIONS)}")
    return activation
