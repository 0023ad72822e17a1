"""One stage on one rank: forward, backward whole or in two parts, and what is kept in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from parproof.subjects.pipeline_protocol import Loss


@dataclass
class Kept:
    """What a forward leaves for its backward: this is what «live activations» counts."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    grads: list[Tensor | None]


class Stage:
    """A module with the micro-batches that are in flight in it."""

    def __init__(self, index: int, module: nn.Module, loss: Loss | None) -> None:
        self.index, self.module, self.loss = index, module, loss
        self.kept: dict[int, Kept] = {}

    def forward(self, micro: int, inputs: Sequence[Tensor], target: Tensor | None) -> list[Tensor]:
        """Run a micro-batch; the last stage gives its loss. Inputs become leaves: backward ends here."""
        is_trained = self.index > 0
        leaves = [x.detach().requires_grad_(is_trained and x.is_floating_point()) for x in inputs]
        out = self.module(*leaves)
        outputs = [out] if isinstance(out, Tensor) else list(out)
        if self.loss is not None:
            assert target is not None
            outputs = [self.loss(outputs[0], target)]
        self.kept[micro] = Kept(leaves, outputs, [])
        return outputs

    def backward(self, micro: int, grads: Sequence[Tensor] | None) -> list[Tensor]:
        """To inputs and weights in one pass."""
        kept = self.kept.pop(micro)
        outputs, grads_in = self._pairs(kept, grads)
        if outputs:
            torch.autograd.backward(outputs, grads_in)
        return [_or_zero(x.grad, x) for x in kept.inputs if x.requires_grad]

    def backward_to_inputs(self, micro: int, grads: Sequence[Tensor] | None) -> list[Tensor]:
        """Gradients of the inputs only; the graph stays for the weights."""
        kept = self.kept[micro]
        outputs, kept.grads = self._pairs(kept, grads)
        kept.outputs = outputs
        wanted = [x for x in kept.inputs if x.requires_grad]
        if not outputs or not wanted:
            return []
        found = torch.autograd.grad(outputs, wanted, kept.grads, retain_graph=True, allow_unused=True)
        return [_or_zero(g, x) for g, x in zip(found, wanted, strict=True)]

    def backward_to_weights(self, micro: int) -> list[Tensor]:
        """Gradients of the weights; releases the micro-batch. Goes through the stage's graph once more."""
        kept = self.kept.pop(micro)
        weights = [p for p in self.module.parameters() if p.requires_grad]
        if kept.outputs and weights:
            found = torch.autograd.grad(kept.outputs, weights, kept.grads, allow_unused=True)
            self.accumulate(weights, found)
        return []

    @staticmethod
    def accumulate(weights: Sequence[nn.Parameter], found: Sequence[Tensor | None]) -> None:
        """Add to `.grad`, as autograd does."""
        for weight, g in zip(weights, found, strict=True):
            if g is not None:
                weight.grad = g if weight.grad is None else weight.grad + g

    def _pairs(self, kept: Kept, grads: Sequence[Tensor] | None) -> tuple[list[Tensor], list[Tensor | None]]:
        """Outputs that have a gradient, each with its own; a loss starts with 1."""
        if grads is None:
            return kept.outputs, [None]
        floating = [x for x in kept.outputs if x.is_floating_point()]
        pairs = [(x, g) for x, g in zip(floating, grads, strict=True) if x.requires_grad]
        return [x for x, _ in pairs], [g for _, g in pairs]


def _or_zero(g: Tensor | None, like: Tensor) -> Tensor:
    """The stage before waits for a gradient, also where there is none."""
    return torch.zeros_like(like) if g is None else g
