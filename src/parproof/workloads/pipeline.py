"""Models cut into stages, and batches whose rows all differ. Small, float64, every stage with its own values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

WIDTH, ROWS = 4, 3  # ROWS of each micro-batch

KINDS = ("chain", "chunks", "shared", "skip", "index", "frozen", "tied")


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
        y = self.inner(x)
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


class Ends(nn.Module):
    """First stage x·E, last stage x·Eᵀ, middle stages a chain: E is one weight used at both ends."""

    def __init__(self, embedding: nn.Parameter, last: bool) -> None:
        super().__init__()
        self.last = last
        self.weight = embedding

    def forward(self, x: Tensor) -> Tensor:
        """[rows, width] in and out."""
        return x @ self.weight.T if self.last else torch.tanh(x @ self.weight)


@dataclass(frozen=True)
class Net:
    """All stages of a model, and what leaves each: (shape of one micro-batch, dtype, has a gradient)."""

    stages: Sequence[nn.Module]
    leaving: Sequence[Sequence[tuple[tuple[int, ...], torch.dtype, bool]]]
    tied: tuple[tuple[int, str], ...] = ()


def net(kind: str, num_stages: int) -> Net:
    """A model of one kind. Whoever builds it twice gets equal values, and never the same objects."""
    last = num_stages - 1
    row = ((ROWS, WIDTH), torch.float64, True)
    leaving = [row]
    tied: tuple[tuple[int, str], ...] = ()
    stages: list[nn.Module] = [Chain(i) for i in range(num_stages)]
    if kind == "chunks":
        stages, leaving = [Chunks(i, i == last) for i in range(num_stages)], [row, row]
    elif kind == "shared":
        stages = [Shared(i) for i in range(num_stages)]
    elif kind == "skip":
        stages, leaving = [Skip(i, i == last) for i in range(num_stages)], [row, row]
    elif kind == "index":
        stages = [Index(i, i == last) for i in range(num_stages)]
        leaving = [row, ((ROWS,), torch.int64, False)]
    elif kind == "frozen":
        for name in ("weight", "bias")[: 1 + num_stages % 2]:
            stages[1].get_parameter(name).requires_grad_(False)
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
