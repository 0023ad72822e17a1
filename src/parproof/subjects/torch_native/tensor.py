"""Tensor parallelism as torch ships it: parallelize_module on ordinary modules, DTensor for layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
)

from parproof.errors import InvalidPlan
from parproof.subjects.tensor_protocol import HeadPlan
from parproof.subjects.torch_native.tensor_layers import (
    EmbeddingLayer,
    InputSplitLayer,
    LossLayer,
    ParallelLayer,
    SequenceLayer,
)
from parproof.subjects.torch_native.tensor_layout import Layouts, mesh_of
from parproof.subjects.torch_native.tensor_modules import Attention, Block, Mlp, linear, loaded, unfused


class TensorParallel(Layouts):
    """See parproof.subjects.tensor_protocol.TensorParallel. Unequal parts are those of torch.chunk."""

    def column_linear(
        self, params: Mapping[str, Tensor], *, gather_output: bool, group: ProcessGroup
    ) -> ParallelLayer:
        """ColwiseParallel."""
        style = ColwiseParallel(
            output_layouts=Replicate() if gather_output else Shard(-1), use_local_output=False
        )
        return ParallelLayer(linear(params), mesh_of(group), {"": style}, params)

    def row_linear(
        self, params: Mapping[str, Tensor], *, input_is_split: bool, group: ProcessGroup
    ) -> ParallelLayer:
        """RowwiseParallel."""
        layouts = Shard(-1) if input_is_split else Replicate()
        style = RowwiseParallel(input_layouts=layouts, use_local_output=False)
        kind = InputSplitLayer if input_is_split else ParallelLayer
        return kind(linear(params), mesh_of(group), {"": style}, params)

    def mlp(self, params: Mapping[str, Tensor], *, activation: str, group: ProcessGroup) -> ParallelLayer:
        """ColwiseParallel, RowwiseParallel; gate and up are two modules, as models for parallelize_module have it."""
        own = unfused(params)
        plan = {"": _whole_input(), **_mlp_plan(own, "")}
        return ParallelLayer(loaded(Mlp(own, activation), own), mesh_of(group), plan, params)

    def attention(
        self, params: Mapping[str, Tensor], *, q_heads: int, kv_heads: int, group: ProcessGroup
    ) -> ParallelLayer:
        """ColwiseParallel for q, k, v with whole local heads; RowwiseParallel for o."""
        ranks = torch.distributed.get_world_size(group)
        if q_heads % ranks or kv_heads % ranks or q_heads % kv_heads:
            raise InvalidPlan(
                f"{q_heads} query and {kv_heads} key/value heads over {ranks} ranks",
                expected="both multiples of the ranks: ColwiseParallel would cut a head",
            )
        column = ColwiseParallel()
        plan = {
            "": _whole_input(),
            **dict.fromkeys(("q", "k", "v"), column),
            "o": RowwiseParallel(use_local_output=False),
        }
        module = Attention(params, q_heads // ranks, kv_heads // ranks, q_heads)
        return ParallelLayer(loaded(module, params), mesh_of(group), plan, params)

    def embedding(self, params: Mapping[str, Tensor], *, group: ProcessGroup) -> ParallelLayer:
        """RowwiseParallel on nn.Embedding."""
        vocabulary, width = params["weight"].shape
        module = nn.Embedding(vocabulary, width, dtype=params["weight"].dtype)
        style = RowwiseParallel(input_layouts=Replicate(), use_local_output=False)
        return EmbeddingLayer(loaded(module, params), mesh_of(group), {"": style}, params)

    def vocabulary_loss(self, *, vocabulary: int, ignore_index: int, group: ProcessGroup) -> LossLayer:
        """loss_parallel."""
        return LossLayer(mesh_of(group), ignore_index)

    def sequence_block(
        self, params: Mapping[str, Tensor], *, norm: str, activation: str, group: ProcessGroup
    ) -> ParallelLayer:
        """SequenceParallel norm, then the MLP with tokens gathered before and scattered after."""
        own = unfused(params)
        tokens_in = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate())
        plan = {"norm": SequenceParallel(), "mlp": tokens_in, **_mlp_plan(own, "mlp.", Shard(1))}
        module = Block(own, norm, activation)
        return SequenceLayer(loaded(module, _nested(own)), mesh_of(group), plan, params)

    def plan_attention(self, q_heads: int, kv_heads: int, ranks: int) -> HeadPlan:
        """Not offered; see tensor_lacks."""
        raise NotImplementedError

    def gradient_norm(self, layers: Sequence[ParallelLayer]) -> float:
        """torch.nn.utils.get_total_norm of all gradients; as a DTensor it is put together."""
        parameters = [p for layer in layers for p in layer.module.parameters()]
        try:
            total = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        except RuntimeError as refusal:
            # Raised before anything is sent, by all ranks alike.
            if "must have the same mesh" not in str(refusal):
                raise
            raise InvalidPlan(str(refusal).splitlines()[0], where="get_total_norm") from refusal
        return float(total.full_tensor() if isinstance(total, DTensor) else total)


def _whole_input() -> PrepareModuleInput:
    """One DTensor for all that use the input, so that its gradient is summed once."""
    return PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())


def _mlp_plan(params: Mapping[str, Tensor], prefix: str, output: Shard | None = None) -> dict[str, object]:
    # The hidden activation stays a DTensor: as a plain tensor its uneven parts would be taken for equal ones.
    columns = [name for name in ("gate", "up") if f"{name}.weight" in params]
    plan: dict[str, object] = {prefix + name: ColwiseParallel(use_local_output=False) for name in columns}
    plan[f"{prefix}down"] = RowwiseParallel(output_layouts=output or Replicate(), use_local_output=False)
    return plan


def _nested(params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {n if n.startswith("norm.") else f"mlp.{n}": value for n, value in params.items()}
