"""parallelize_module results as layers that say which part of what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import loss_parallel, parallelize_module
from torch.nn import functional

from parproof.subjects.tensor_protocol import Piece
from parproof.subjects.torch_native.tensor_layout import as_dtensor, index_of, piece_of


class ParallelLayer:
    """A module under parallelize_module. plan: sub-module name ("" is the module itself) → style."""

    def __init__(
        self, module: nn.Module, mesh: DeviceMesh, plan: Mapping[str, Any], params: Mapping[str, Tensor]
    ) -> None:
        self.mesh, self.params = mesh, params
        root = nn.ModuleDict({"it": module})
        full = {f"it.{name}".removesuffix("."): style for name, style in plan.items()}
        parallelize_module(root, mesh, full)
        self.module = module

    def take(self, whole: Tensor) -> Piece:
        """All of the input."""
        return Piece(whole, tuple((0, size) for size in whole.shape))

    def __call__(self, x: Tensor, *extra: Tensor) -> Piece:
        """The output's local part."""
        return piece_of(self.module(x))

    def parameters(self) -> dict[str, list[Piece]]:
        """Local parts of the DTensor parameters."""
        return self._named({name: p.detach() for name, p in self.module.named_parameters()})

    def gradients(self) -> dict[str, list[Piece]]:
        """Local parts; a gradient that is still a sum to be made (norms) is made, as an optimizer step would."""
        return self._named(
            {name: finished(p.grad) for name, p in self.module.named_parameters() if p.grad is not None}
        )

    def _named(self, tensors: Mapping[str, Tensor]) -> dict[str, list[Piece]]:
        """By the names of the whole parameters: gate and up are halves of gate_up."""
        found: dict[str, list[Piece]] = {}
        for own, tensor in tensors.items():
            name = own.removeprefix("mlp.")
            piece = piece_of(tensor)
            if name not in self.params or (name.startswith("up.") and f"gate_{name}" in self.params):
                piece, name = self._half(name, piece)
            found.setdefault(name, []).append(piece)
        return found

    def _half(self, name: str, piece: Piece) -> tuple[Piece, str]:
        part, kind = name.split(".")
        fused = f"gate_up.{kind}"
        offset = self.params[fused].shape[0] // 2 if part == "up" else 0
        (start, stop), *rest = piece.index
        return Piece(piece.local, ((start + offset, stop + offset), *rest)), fused


def finished(gradient: Tensor) -> Tensor:
    """A DTensor gradient without summands that are still apart."""
    if isinstance(gradient, DTensor) and any(p.is_partial() for p in gradient.placements):
        return gradient.redistribute(
            placements=[Replicate() if p.is_partial() else p for p in gradient.placements]
        )
    return gradient


class InputSplitLayer(ParallelLayer):
    """Takes its input split along the last dim; the size of the whole is given, because parts may be unequal."""

    dim = -1
    whole: Tensor

    def take(self, whole: Tensor) -> Piece:
        """This rank's part."""
        self.whole = whole.detach().to("meta")
        return _part(whole, self.mesh, self.dim)

    def __call__(self, x: Tensor, *extra: Tensor) -> Piece:
        """The output's local part."""
        shape, stride = self.whole.shape, self.whole.stride()
        return piece_of(self.module(as_dtensor(x, self.mesh, [Shard(self.dim % x.dim())], shape, stride)))


class SequenceLayer(ParallelLayer):
    """Takes its input split along the tokens, as plain tensors: the way the tutorials call it."""

    def take(self, whole: Tensor) -> Piece:
        """This rank's tokens."""
        return _part(whole, self.mesh, 1)


class EmbeddingLayer(ParallelLayer):
    """Ids in; they have no gradient."""


class LossLayer:
    """cross_entropy of DTensor logits under loss_parallel."""

    def __init__(self, mesh: DeviceMesh, ignore_index: int) -> None:
        self.mesh, self.ignore_index = mesh, ignore_index
        self.shape = torch.Size()

    def take(self, whole: Tensor) -> Piece:
        """This rank's logits of every token."""
        self.shape = whole.shape
        return _part(whole, self.mesh, 1)

    def __call__(self, x: Tensor, *extra: Tensor) -> Piece:
        """The loss, the same on every rank. Its backward needs the context too, so it runs inside here."""
        logits = as_dtensor(x.detach(), self.mesh, [Shard(1)], self.shape)
        return Piece(_Loss.apply(x, logits, extra[0], self.ignore_index), ())  # type: ignore[no-untyped-call]

    def parameters(self) -> dict[str, list[Piece]]:
        """None."""
        return {}

    def gradients(self) -> dict[str, list[Piece]]:
        """None."""
        return {}


def _part(whole: Tensor, mesh: DeviceMesh, dim: int) -> Piece:
    index = index_of(whole.shape, mesh, [Shard(dim % whole.dim())])
    return Piece(whole[tuple(slice(a, b) for a, b in index)], index)


class _Loss(torch.autograd.Function):
    """cross_entropy whose backward is run under loss_parallel, wherever the caller runs it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, logits: DTensor, targets: Tensor, ignore_index: int) -> Tensor:
        with torch.enable_grad(), loss_parallel():
            leaf = logits.detach().requires_grad_()
            loss = functional.cross_entropy(leaf, targets, ignore_index=ignore_index)
        ctx.leaf, ctx.loss = leaf, loss
        return loss.to_local() if isinstance(loss, DTensor) else loss

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        with loss_parallel():
            (gradient,) = torch.autograd.grad(ctx.loss, ctx.leaf, as_dtensor(grads[0], ctx.leaf.device_mesh))
        return gradient.to_local(), None, None, None
