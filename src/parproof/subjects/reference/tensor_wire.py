"""The collectives of tensor parallelism on one group, and the six ways a value crosses into or out of a region.

A crossing is a pair of collectives: what happens to the value going forward, and to its gradient coming back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

Bounds = Sequence[tuple[int, int]]


def part(size: int, parts: int, number: int) -> tuple[int, int]:
    """(start, stop) of one of `parts` parts that differ by at most one element."""
    small, rest = divmod(size, parts)
    start = number * small + min(number, rest)
    return start, start + small + (number < rest)


class Wire:
    """The group's collectives as functions. p = ranks, S = bytes of the whole."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)

    def bounds(self, size: int) -> list[tuple[int, int]]:
        """The part of each rank."""
        return [part(size, self.size, rank) for rank in range(self.size)]

    def sum(self, x: Tensor) -> Tensor:
        """x summed over the ranks: one all_reduce of S bytes."""
        return self._reduced(x, dist.ReduceOp.SUM)

    def max(self, x: Tensor) -> Tensor:
        """The largest x of any rank, by element: one all_reduce of S bytes."""
        return self._reduced(x, dist.ReduceOp.MAX)

    def _reduced(self, x: Tensor, op: Any) -> Tensor:
        # A copy: autograd may still need x. Contiguous: gloo reads strided memory as if it were not.
        y = x.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(y, op=op, group=self.group)
        return y

    def gather(self, x: Tensor, dim: int, bounds: Bounds) -> Tensor:
        """All parts along dim, in rank order: one all_gather, S/p in and S out, padded to the largest part."""
        longest = max(stop - start for start, stop in bounds)
        mine = _padded(x.detach(), dim, longest)
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(parts, mine, group=self.group)
        lengths = [stop - start for start, stop in bounds]
        return torch.cat([p.narrow(dim, 0, n) for p, n in zip(parts, lengths, strict=True)], dim)

    def scatter_sum(self, x: Tensor, dim: int, bounds: Bounds) -> Tensor:
        """This rank's part of the sum: one reduce_scatter, S in and S/p out, padded to the largest part."""
        longest = max(stop - start for start, stop in bounds)
        parts = [_padded(x.detach().narrow(dim, a, b - a), dim, longest) for a, b in bounds]
        out = torch.empty_like(parts[0])
        dist.reduce_scatter(out, parts, group=self.group)
        start, stop = bounds[self.rank]
        return out.narrow(dim, 0, stop - start)

    def exchange(self, x: Tensor, dim: int, bounds: Bounds, new_dim: int, new_bounds: Bounds) -> Tensor:
        """From parts along dim to parts along new_dim: one all_to_all, this rank's old part in, its new part out."""
        sent = [x.detach().narrow(new_dim, a, b - a).reshape(-1) for a, b in new_bounds]
        start, stop = new_bounds[self.rank]
        shapes = [list(x.shape) for _ in bounds]
        for shape, (a, b) in zip(shapes, bounds, strict=True):
            shape[dim], shape[new_dim] = b - a, stop - start
        lengths = [math.prod(shape) for shape in shapes]
        received = x.new_empty(sum(lengths))
        dist.all_to_all_single(
            received, torch.cat(sent), lengths, [part.numel() for part in sent], group=self.group
        )
        parts = [part.view(shape) for part, shape in zip(received.split(lengths), shapes, strict=True)]
        return torch.cat(parts, dim)

    def take(self, x: Tensor, dim: int, bounds: Bounds) -> Tensor:
        """This rank's part of what all ranks hold: no communication."""
        start, stop = bounds[self.rank]
        return x.narrow(dim, start, stop - start)


def _padded(x: Tensor, dim: int, length: int) -> Tensor:
    missing = length - x.shape[dim]
    if not missing:
        return x.contiguous()
    shape = list(x.shape)
    shape[dim] = missing
    return torch.cat([x, x.new_zeros(shape)], dim)


class _Crossing(torch.autograd.Function):
    """A value function going forward, a gradient function coming back."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, forward: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]
    ) -> Tensor:
        ctx.back = back
        y = forward(x)
        return y.view_as(x) if y is x else y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return ctx.back(grads[0]), None, None


def crossing(x: Tensor, forward: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]) -> Tensor:
    """forward(x), whose gradient is back(gradient)."""
    return _Crossing.apply(x, forward, back)  # type: ignore[no-untyped-call,no-any-return]


def same(x: Tensor) -> Tensor:
    """Nothing happens."""
    return x


class Regions(Wire):
    """Crossings between what all ranks hold in common and what each holds a part of."""

    def enter(self, x: Tensor) -> Tensor:
        """All hold x and use it differently: as it is; its gradients add up."""
        return crossing(x, same, self.sum)

    def leave(self, x: Tensor) -> Tensor:
        """Each holds a summand: the sum; its gradient is for everyone."""
        return crossing(x, self.sum, same)

    def gather_parts(self, x: Tensor, dim: int, bounds: Bounds) -> Tensor:
        """Each holds a part: the whole; each keeps its part of the gradient."""
        return crossing(x, lambda v: self.gather(v, dim, bounds), lambda g: self.take(g, dim, bounds))

    def split(self, x: Tensor, dim: int, bounds: Bounds) -> Tensor:
        """All hold the whole: a part; the gradients are put together."""
        return crossing(x, lambda v: self.take(v, dim, bounds), lambda g: self.gather(g, dim, bounds))

    def turn(self, x: Tensor, dim: int, bounds: Bounds, new_dim: int, new_bounds: Bounds) -> Tensor:
        """Each holds a part along dim: a part along new_dim; the gradients go back the same way."""
        return crossing(
            x,
            lambda v: self.exchange(v, dim, bounds, new_dim, new_bounds),
            lambda g: self.exchange(g, new_dim, new_bounds, dim, bounds),
        )

    def enter_from_parts(self, x: Tensor, dim: int, bounds: Bounds) -> Tensor:
        """Each holds a part and all use the whole differently: gathered; gradients summed into parts."""
        return crossing(x, lambda v: self.gather(v, dim, bounds), lambda g: self.scatter_sum(g, dim, bounds))

    def leave_to_parts(self, x: Tensor, dim: int, bounds: Bounds) -> Tensor:
        """Each holds a summand: a part of the sum; the gradients are put together."""
        return crossing(x, lambda v: self.scatter_sum(v, dim, bounds), lambda g: self.gather(g, dim, bounds))
