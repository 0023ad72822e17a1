"""Models cut into stages, and batches whose rows all differ. Small, float64, every stage with its own values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from parproof.workloads.pipeline_cases import ROWS

WIDTH = 4


def _values(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Multiples of 1/64 around zero: no two tensors alike, and nothing symmetric."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-48, 49, shape, generator=generator).to(dtype) / 64


class Chain(nn.Module):
    """tanh(x·W + b): one tensor in, one out."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(_values(WIDTH, WIDTH, seed=100 + index))
        self.bias = nn.Parameter(_values(WIDTH, seed=200 + index))

    def forward(self, x: Tensor) -> Tensor:
        """[rows, width] in and out."""
        return torch.tanh(x @ self.weight + self.bias)


class Chunks(nn.Module):
    """Two tensors in, two out, cut from one product: the split is an intermediate with several outputs."""

    def __init__(self, index: int, last: bool) -> None:
        super().__init__()
        self.last = last
        self.weight = nn.Parameter(_values(WIDTH, 2 * WIDTH, seed=300 + index))
        self.gate = nn.Parameter(_values(WIDTH, seed=400 + index))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """[rows, width] each."""
        both = x if y is None else x * torch.sigmoid(y)
        left, right = (both @ self.weight).chunk(2, dim=-1)
        left, right = torch.tanh(left), right * self.gate
        return left * right if self.last else (left, right)


class Shared(nn.Module):
    """x·W·W: one weight, two uses in a row, so that its gradient has two terms."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(_values(WIDTH, WIDTH, seed=500 + index))

    def forward(self, x: Tensor) -> Tensor:
        """[rows, width] in and out."""
        return torch.tanh(x @ self.weight @ self.weight)


class Skip(nn.Module):
    """The first stage's output also travels unchanged to the last one, which adds it."""

    def __init__(self, index: int, last: bool) -> None:
        super().__init__()
        self.last = last
        self.inner = Chain(index)

    def forward(self, x: Tensor, skip: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """[rows, width] each."""
        y: Tensor = self.inner(x)
        if self.last:
            return y if skip is None else y + 2 * skip
        return y, y if skip is None else skip


class Index(nn.Module):
    """Row numbers travel along as integers, which have no gradient; every stage weights its rows by them."""

    def __init__(self, index: int, last: bool) -> None:
        super().__init__()
        self.last = last
        self.inner = Chain(index)

    def forward(self, x: Tensor, number: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """[rows, width] and [rows]."""
        if number is None:
            number = (x[:, 0] * 64).to(torch.int64)
        y = self.inner(x) * (1 + number.to(x.dtype) / 128).unsqueeze(-1)
        return y if self.last else (y, number)


class Hooked(Chain):
    """Halves the gradient of its input by a hook on it, as clipping or logging code does."""

    def forward(self, x: Tensor) -> Tensor:
        """[rows, width] in and out."""
        if x.requires_grad:
            x.register_hook(lambda g: g / 2)
        return super().forward(x)


class _Product(torch.autograd.Function):
    """x·W with a backward of its own, which an autograd graph shows as one node."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return g @ weight.T, x.T @ g


class Function(Chain):
    """A chain whose product is a custom autograd function, as fused kernels are."""

    def forward(self, x: Tensor) -> Tensor:
        """[rows, width] in and out."""
        y: Tensor = _Product.apply(x, self.weight)  # type: ignore[no-untyped-call]
        return torch.tanh(y + self.bias)


class Ends(nn.Module):
    """First stage x·E, last stage x·Eᵀ, middle stages a chain: E is one weight used at both ends."""

    def __init__(self, embedding: nn.Parameter, last: bool) -> None:
        super().__init__()
        self.last = last
        self.weight = embedding

    def forward(self, x: Tensor) -> Tensor:
        """[rows, width] in and out."""
        y: Tensor = x @ self.weight.T if self.last else torch.tanh(x @ self.weight)
        return y


Leaving = tuple[tuple[int, ...], torch.dtype, bool]


@dataclass(frozen=True)
class Net:
    """All stages of a model, and what leaves each: (shape of one micro-batch, dtype, has a gradient)."""

    stages: Sequence[nn.Module]
    leaving: Sequence[Sequence[Leaving]]
    tied: tuple[tuple[int, str], ...] = ()


def net(kind: str, num_stages: int) -> Net:
    """A model of one kind. Whoever builds it twice gets equal values, and never the same objects."""
    last = num_stages - 1
    row: Leaving = ((ROWS, WIDTH), torch.float64, True)
    leaving = [row]
    tied: tuple[tuple[int, str], ...] = ()
    stages: list[nn.Module] = [Chain(i) for i in range(num_stages)]
    if kind == "chunks":
        stages, leaving = [Chunks(i, i == last) for i in range(num_stages)], [row, row]
    elif kind == "shared":
        stages = [Shared(i) for i in range(num_stages)]
    elif kind in ("hooked", "function"):
        stages = [{"hooked": Hooked, "function": Function}[kind](i) for i in range(num_stages)]
    elif kind == "skip":
        stages, leaving = [Skip(i, i == last) for i in range(num_stages)], [row, row]
    elif kind == "index":
        stages = [Index(i, i == last) for i in range(num_stages)]
        leaving = [row, ((ROWS,), torch.int64, False)]
    elif kind == "frozen":
        stages[1].requires_grad_(False)
    elif kind == "tied":
        embedding = nn.Parameter(_values(WIDTH, WIDTH, seed=600))
        stages[0], stages[last] = Ends(embedding, False), Ends(embedding, True)
        tied = ((0, "weight"), (last, "weight"))
    return Net(stages, [leaving] * last, tied)


def batch(num_rows: int, step: int) -> tuple[Tensor, Tensor]:
    """(inputs, targets) of one step: [num_rows, width] each."""
    return _values(num_rows, WIDTH, seed=700 + step), _values(num_rows, WIDTH, seed=800 + step)


def mean_square(output: Tensor, target: Tensor) -> Tensor:
    """The loss: a mean over all elements of a micro-batch."""
    return ((output - target) ** 2).mean()


def num_bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Payload of a tensor of this shape."""
    return torch.Size(shape).numel() * dtype.itemsize


def alone(kind: str, index: int) -> tuple[list[Tensor], list[Tensor]]:
    """(inputs, gradients of the outputs) of stage 1 or 2 of three: no two values alike."""
    x, y = batch(2 * ROWS, 40 + index)
    inputs = list(x.chunk(2))[: 1 if kind in ("chain", "shared", "frozen", "function") else 2]
    if kind == "index":
        inputs = [inputs[0], torch.arange(ROWS)]
    return inputs, list(y.chunk(2))[: len(inputs) if index < 2 else 1]
