"""Functional collectives with gradients, on the reference's own collectives.

Backward passes follow from the loss being the sum of all ranks' losses:
    all_reduce ← all_reduce          all_gather ← reduce_scatter(sum)      broadcast ← reduce to the root
    reduce_scatter ← all_gather      all_to_all ← all_to_all, splits swapped
«avg» divides by p in both directions. What is not linear has the ranks' values in its gradient, so these travel as well:
    min, max ← whether a rank holds the extremum, summed up; those that do share the gradient in equal parts
    product ← all ranks' inputs, gathered; the factor of a rank is the product of the others (right for zeros, too)
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.distributed import ProcessGroup

from parproof.errors import UsageError
from parproof.subjects.reference.collectives import Collectives


def through(wire: Collectives, op: str, x: Tensor, y: Tensor, total: Tensor, group: ProcessGroup) -> Tensor:
    """The gradient of x, given that of the reduction y of all ranks' x, both whole on every rank."""
    if op == "product":
        every = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(group.size())]
        wire.all_gather(every, x, group)
        del every[group.rank()]
        return total * torch.stack(every).prod(0) if every else total
    if op not in ("min", "max"):
        return total / group.size() if op == "avg" else total
    holds = (x == y).to(x.dtype)
    holders = holds.clone()
    wire.all_reduce(holders, "sum", group)
    return (total.double() * holds / holders).to(x.dtype)


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, wire: Collectives, op: str, group: ProcessGroup) -> Tensor:
        ctx.settings = wire, op, group
        out = x.detach().contiguous().clone()
        wire.all_reduce(out, op, group)
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        wire, op, group = ctx.settings
        x, y = ctx.saved_tensors
        total = grad.contiguous().clone()
        wire.all_reduce(total, "sum", group)
        return through(wire, op, x, y, total, group), None, None, None


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, wire: Collectives, dim: int, group: ProcessGroup) -> Tensor:
        ctx.settings = wire, dim, group
        parts = [torch.empty_like(x) for _ in range(group.size())]
        wire.all_gather(parts, x, group)
        return torch.cat(parts, dim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        wire, dim, group = ctx.settings
        parts = list(grad.tensor_split(group.size(), dim))
        mine = torch.empty_like(parts[group.rank()])
        wire.reduce_scatter(mine, parts, "sum", group)
        return mine, None, None, None


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, wire: Collectives, op: str, dim: int, group: ProcessGroup) -> Tensor:
        ctx.settings = wire, op, dim, group
        if x.shape[dim] % group.size():
            raise UsageError(f"size {x.shape[dim]} along dim {dim}", expected=f"a multiple of {group.size()}")
        parts = list(x.tensor_split(group.size(), dim))
        out = torch.empty_like(parts[group.rank()], memory_format=torch.contiguous_format)
        wire.reduce_scatter(out, parts, op, group)
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        wire, op, dim, group = ctx.settings
        x, out = ctx.saved_tensors
        whole = _whole(wire, grad, dim, group)
        y = _whole(wire, out, dim, group) if op in ("min", "max") else whole
        return through(wire, op, x, y, whole, group), None, None, None, None


def _whole(wire: Collectives, part: Tensor, dim: int, group: ProcessGroup) -> Tensor:
    parts = [torch.empty_like(part, memory_format=torch.contiguous_format) for _ in range(group.size())]
    wire.all_gather(parts, part, group)
    return torch.cat(parts, dim)


class _AllToAll(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        wire: Collectives,
        out_splits: list[int] | None,
        in_splits: list[int] | None,
        group: ProcessGroup,
    ) -> Tensor:
        ctx.settings = wire, out_splits, in_splits, group
        rows = x.shape[0] if out_splits is None else sum(out_splits)
        out = x.new_empty((rows, *x.shape[1:]))
        wire.all_to_all_single(out, x, out_splits, in_splits, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        wire, out_splits, in_splits, group = ctx.settings
        rows = grad.shape[0] if in_splits is None else sum(in_splits)
        back = grad.new_empty((rows, *grad.shape[1:]))
        wire.all_to_all_single(back, grad, in_splits, out_splits, group)
        return back, None, None, None, None


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, wire: Collectives, root: int, group: ProcessGroup) -> Tensor:
        ctx.settings = wire, root, group
        out = x.detach().contiguous().clone()
        wire.broadcast(out, root, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        wire, root, group = ctx.settings
        total = grad.contiguous().clone()
        wire.reduce(total, "sum", root, group)
        # The input of a rank that is not the root has no influence on anything.
        return (total if group.rank() == root else torch.zeros_like(total)), None, None, None


class FunctionalCollectives:
    """See parproof.subjects.collectives_protocol."""

    algorithms: Mapping[str, str] = MappingProxyType({**Collectives.algorithms, "coalesced": "one_by_one"})

    def __init__(self) -> None:
        self._wire = Collectives()

    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup) -> Any:
        """Ring both ways."""
        return _AllReduce.apply(x, self._wire, op, group)  # type: ignore[no-untyped-call]

    def all_gather(self, x: Tensor, dim: int, group: ProcessGroup) -> Any:
        """Ring both ways."""
        return _AllGather.apply(x, self._wire, dim, group)  # type: ignore[no-untyped-call]

    def reduce_scatter(self, x: Tensor, op: str, dim: int, group: ProcessGroup) -> Any:
        """Ring both ways."""
        return _ReduceScatter.apply(x, self._wire, op, dim, group)  # type: ignore[no-untyped-call]

    def all_to_all(
        self, x: Tensor, out_splits: list[int] | None, in_splits: list[int] | None, group: ProcessGroup
    ) -> Any:
        """Direct both ways."""
        return _AllToAll.apply(x, self._wire, out_splits, in_splits, group)  # type: ignore[no-untyped-call]

    def broadcast(self, x: Tensor, root: int, group: ProcessGroup) -> Any:
        """Binomial tree down, and up again."""
        return _Broadcast.apply(x, self._wire, root, group)  # type: ignore[no-untyped-call]

    def permute(self, x: Tensor, targets: list[int], group: ProcessGroup) -> Any:
        """An all_to_all in which each rank has rows for one other only."""
        rows, me = x.shape[0], group.rank()
        in_splits = [rows * (j == targets[me]) for j in range(group.size())]
        out_splits = [rows * (targets[j] == me) for j in range(group.size())]
        return self.all_to_all(x, out_splits, in_splits, group)

    def all_reduce_coalesced(self, xs: list[Tensor], op: str, group: ProcessGroup) -> list[Any]:
        """One after the other: nothing is gained, nothing is lost."""
        return [self.all_reduce(x, op, group) for x in xs]

    def all_gather_coalesced(self, xs: list[Tensor], group: ProcessGroup) -> list[Any]:
        """One after the other."""
        return [self.all_gather(x, 0, group) for x in xs]

    def reduce_scatter_coalesced(self, xs: list[Tensor], op: str, group: ProcessGroup) -> list[Any]:
        """One after the other."""
        return [self.reduce_scatter(x, op, 0, group) for x in xs]
