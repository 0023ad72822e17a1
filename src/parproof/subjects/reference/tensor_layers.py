"""Linear layers, MLP and the sequence-parallel block, split over a group.

Legend: p ranks; in, out, hidden: widths of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from parproof.errors import InvalidPlan
from parproof.subjects.reference.tensor_wire import Regions
from parproof.subjects.tensor_protocol import Index, Piece

GATED = ("swiglu", "geglu")


def whole_index(shape: Sequence[int]) -> Index:
    """The index that takes everything."""
    return tuple((0, size) for size in shape)


def with_range(index: Index, dim: int, bounds: tuple[int, int]) -> Index:
    """The index with another range along one dim."""
    dim %= len(index)
    return (*index[:dim], bounds, *index[dim + 1 :])


@dataclass
class Held:
    """A parameter on this rank: a leaf tensor, the parts of the whole it consists of, and how many ranks hold it.

    Parts are laid out one after the other along dim 0.
    """

    leaf: Tensor
    parts: list[Index]
    replicas: int

    def pieces(self, tensor: Tensor) -> list[Piece]:
        """The parts of a tensor shaped like the leaf."""
        lengths = [index[0][1] - index[0][0] for index in self.parts]
        return [Piece(t, i) for t, i in zip(torch.split(tensor, lengths), self.parts, strict=True)]


class Layer:
    """Keeps parts of parameters. Subclasses compute."""

    def __init__(self, wire: Regions) -> None:
        self.wire = wire
        self.held: dict[str, Held] = {}

    def take(self, whole: Tensor) -> Piece:
        """All of the input."""
        return Piece(whole, whole_index(whole.shape))

    def keep(self, name: str, whole: Tensor, parts: list[Index] | None = None, *, replicas: int = 0) -> None:
        """Keep these parts of a parameter (default: all of it, as every other rank does)."""
        indices = parts or [whole_index(whole.shape)]
        cut = [whole[tuple(slice(a, b) for a, b in index)] for index in indices]
        leaf = torch.cat(cut).clone().requires_grad_()
        self.held[name] = Held(leaf, indices, replicas or (1 if parts else self.wire.size))

    def keep_split(self, name: str, whole: Tensor, dim: int) -> None:
        """Keep this rank's part along dim."""
        if whole.shape[dim] < self.wire.size:
            raise InvalidPlan(
                f"{name} has {whole.shape[dim]} rows or columns to split over {self.wire.size} ranks",
                expected="at least one for each rank",
            )
        mine = self.wire.bounds(whole.shape[dim])[self.wire.rank]
        self.keep(name, whole, [with_range(whole_index(whole.shape), dim, mine)])

    def weight(self, name: str) -> Tensor:
        """The local parameter."""
        return self.held[name].leaf

    def optional(self, name: str) -> Tensor | None:
        """The local parameter, if the layer has one of this name."""
        return self.held[name].leaf if name in self.held else None

    def parameters(self) -> dict[str, list[Piece]]:
        """What this rank keeps."""
        return {name: held.pieces(held.leaf.detach()) for name, held in self.held.items()}

    def gradients(self) -> dict[str, list[Piece]]:
        """Finished by the crossings during backward."""
        return {n: h.pieces(h.leaf.grad) for n, h in self.held.items() if h.leaf.grad is not None}

    def gradient_norm_squared(self) -> float:
        """Each element counts once, however many ranks hold it: one all_reduce of a number."""
        squares = [
            held.leaf.grad.double().square().sum() / held.replicas
            for held in self.held.values()
            if held.leaf.grad is not None
        ]
        return float(self.wire.sum(torch.stack(squares).sum()))


class ColumnLinear(Layer):
    """y = x Wᵀ + b with W, b split along out.

    Cost  forward: all_gather of y if gathered, else nothing; backward: all_reduce of dx
    """

    def __init__(self, wire: Regions, params: Mapping[str, Tensor], gather_output: bool) -> None:
        super().__init__(wire)
        self.out, self.gather_output = params["weight"].shape[0], gather_output
        for name, whole in params.items():
            self.keep_split(name, whole, 0)

    def __call__(self, x: Tensor, *extra: Tensor) -> Piece:
        """Whole x in; a part of y out, or all of it."""
        y = functional.linear(self.wire.enter(x), self.weight("weight"), self.optional("bias"))
        bounds = self.wire.bounds(self.out)
        index = whole_index([*y.shape[:-1], self.out])
        if self.gather_output:
            return Piece(self.wire.gather_parts(y, -1, bounds), index)
        return Piece(y, with_range(index, -1, bounds[self.wire.rank]))


class RowLinear(Layer):
    """y = x Wᵀ + b with W split along in; b is added once, after the sum.

    Cost  forward: all_reduce of y; backward: all_gather of dx if x was whole, else nothing
    """

    def __init__(self, wire: Regions, params: Mapping[str, Tensor], input_is_split: bool) -> None:
        super().__init__(wire)
        self.input_is_split = input_is_split
        self.bounds = wire.bounds(params["weight"].shape[1])
        self.keep_split("weight", params["weight"], 1)
        if "bias" in params:
            self.keep("bias", params["bias"])

    def take(self, whole: Tensor) -> Piece:
        """The part of x that meets the local columns, if x comes split."""
        if not self.input_is_split:
            return super().take(whole)
        index = with_range(whole_index(whole.shape), -1, self.bounds[self.wire.rank])
        return Piece(self.wire.take(whole, -1, self.bounds), index)

    def __call__(self, x: Tensor, *extra: Tensor) -> Piece:
        """Whole y on every rank."""
        mine = x if self.input_is_split else self.wire.split(x, -1, self.bounds)
        y = self.finish(functional.linear(mine, self.weight("weight")))
        return Piece(y, whole_index(y.shape))

    def finish(self, summand: Tensor) -> Tensor:
        """Sum, then bias."""
        y = self.wire.leave(summand)
        bias = self.optional("bias")
        return y if bias is None else y + bias


class Mlp(Layer):
    """Column, activation, row: hidden stays split, so one sum is enough.

    Cost  forward: all_reduce of y; backward: all_reduce of dx
    """

    def __init__(self, wire: Regions, params: Mapping[str, Tensor], activation: str) -> None:
        super().__init__(wire)
        self.activation = activation
        for name, whole in params.items():
            if name.startswith("gate_up."):
                self.keep_gated(name, whole)
            elif name.startswith("up."):
                self.keep_split(name, whole, 0)
            elif name == "down.weight":
                self.keep_split(name, whole, 1)
            elif name == "down.bias":
                self.keep(name, whole)

    def keep_gated(self, name: str, whole: Tensor) -> None:
        """A part of the gate and the same part of up: each rank can multiply what belongs together."""
        hidden = whole.shape[0] // 2
        start, stop = self.wire.bounds(hidden)[self.wire.rank]
        index = whole_index(whole.shape)
        first, second = (start, stop), (hidden + start, hidden + stop)
        self.keep(name, whole, [with_range(index, 0, first), with_range(index, 0, second)])

    def __call__(self, x: Tensor, *extra: Tensor) -> Piece:
        """Whole x in, whole y out."""
        y = self.finish(self.summand(self.wire.enter(x)))
        return Piece(y, whole_index(y.shape))

    def summand(self, x: Tensor) -> Tensor:
        """This rank's contribution to the output, before the sum."""
        name = "gate_up" if self.activation in GATED else "up"
        hidden = activate(
            functional.linear(x, self.weight(f"{name}.weight"), self.optional(f"{name}.bias")),
            self.activation,
        )
        return functional.linear(hidden, self.weight("down.weight"))

    def finish(self, summand: Tensor) -> Tensor:
        """Sum, then bias."""
        y = self.wire.leave(summand)
        bias = self.optional("down.bias")
        return y if bias is None else y + bias


def activate(x: Tensor, activation: str) -> Tensor:
    """gelu, relu; or gate(first half) * second half."""
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "gelu": functional.gelu,
        "relu": functional.relu,
        "swiglu": functional.silu,
        "geglu": functional.gelu,
    }
    if activation not in GATED:
        return functions[activation](x)
    gate, up = x.chunk(2, -1)
    return functions[activation](gate) * up


class SequenceBlock(Mlp):
    """norm on a part of the tokens, MLP on all of them, output split again.

    Cost  forward: all_gather of x, reduce_scatter of y; backward: the same of dy and dx, and an all_reduce for
          each parameter that every rank holds but sees only its own tokens of (norm, bias)
    """

    dim = 1

    def __init__(self, wire: Regions, params: Mapping[str, Tensor], norm: str, activation: str) -> None:
        super().__init__(wire, params, activation)
        self.norm = norm
        self.tokens = 0
        for name, whole in params.items():
            if name.startswith("norm."):
                self.keep(name, whole)

    def take(self, whole: Tensor) -> Piece:
        """This rank's tokens."""
        self.tokens = whole.shape[self.dim]
        if self.tokens < self.wire.size:
            raise InvalidPlan(
                f"{self.tokens} tokens over {self.wire.size} ranks", expected="at least one for each rank"
            )
        bounds = self.wire.bounds(self.tokens)
        index = with_range(whole_index(whole.shape), self.dim, bounds[self.wire.rank])
        return Piece(self.wire.take(whole, self.dim, bounds), index)

    def __call__(self, x: Tensor, *extra: Tensor) -> Piece:
        """This rank's tokens in and out."""
        bounds = self.wire.bounds(self.tokens)
        gathered = self.wire.enter_from_parts(self.normalise(x), self.dim, bounds)
        y = self.wire.leave_to_parts(self.summand(gathered), self.dim, bounds)
        if "down.bias" in self.held:
            y = y + self.shared("down.bias")
        index = whole_index([x.shape[0], self.tokens, y.shape[-1]])
        return Piece(y, with_range(index, self.dim, bounds[self.wire.rank]))

    def shared(self, name: str) -> Tensor:
        """A parameter all ranks hold, used on different tokens by each: its gradients add up."""
        return self.wire.enter(self.weight(name))

    def normalise(self, x: Tensor) -> Tensor:
        """Layer norm or RMS norm over the width."""
        weight = self.shared("norm.weight")
        if self.norm == "rms":
            return functional.rms_norm(x, [x.shape[-1]], weight, 1e-5)
        return functional.layer_norm(x, [x.shape[-1]], weight, self.shared("norm.bias"), 1e-5)
