"""Collectives of the expert layer as differentiable functions of rows. An axis of one rank sends nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from parproof.torch_names import all_gather_single, reduce_scatter_single

Group = ProcessGroup | None


def size_of(group: Group) -> int:
    """Ranks on the axis."""
    return 1 if group is None else group.size()


def rank_on(group: Group) -> int:
    """This rank's place on the axis."""
    return 0 if group is None else group.rank()


def sum_over(x: Tensor, group: Group) -> Tensor:
    """x summed over the axis, in a new tensor."""
    y = x.detach().clone(memory_format=torch.contiguous_format)
    if group is not None:
        dist.all_reduce(y, group=group)
    return y


def swap_rows(rows: Tensor, sent: Sequence[int], received: Sequence[int], group: Group) -> Tensor:
    """Block d of `sent[d]` rows goes to rank d; block s of `received[s]` rows came from rank s."""
    if group is None:
        return rows.clone()
    out = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(out, rows.contiguous(), list(received), list(sent), group=group)
    return out


def gather_rows(rows: Tensor, group: Group) -> Tensor:
    """Equally many rows of every rank, in rank order."""
    if group is None:
        return rows.clone()
    out = rows.new_empty((rows.shape[0] * group.size(), *rows.shape[1:]))
    all_gather_single(out, rows.contiguous(), group=group)
    return out


def scatter_row_sums(rows: Tensor, group: Group) -> Tensor:
    """Transpose of gather_rows: sum over ranks, keep this rank's block."""
    if group is None:
        return rows.clone()
    out = rows.new_empty((rows.shape[0] // group.size(), *rows.shape[1:]))
    reduce_scatter_single(out, rows.contiguous(), group=group)
    return out


class _Swap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sent: Sequence[int], received: Sequence[int], group: Group) -> Tensor:
        ctx.way_back = received, sent, group
        return swap_rows(rows, sent, received, group)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return swap_rows(grads[0], *ctx.way_back), None, None, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return gather_rows(rows, group)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return scatter_row_sums(grads[0], ctx.group), None


class _ScatterSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return scatter_row_sums(rows, group)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return gather_rows(grads[0], ctx.group), None


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return sum_over(grads[0], ctx.group), None


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        return sum_over(x, group)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0], None


def swap(rows: Tensor, sent: Sequence[int], received: Sequence[int], group: Group) -> Tensor:
    """swap_rows, whose gradient takes the same ways back."""
    return _Swap.apply(rows, sent, received, group)  # type: ignore[no-untyped-call,no-any-return]


def gather(rows: Tensor, group: Group) -> Tensor:
    """gather_rows, whose gradient is summed where the rows came from."""
    return _Gather.apply(rows, group)  # type: ignore[no-untyped-call,no-any-return]


def scatter_sum(rows: Tensor, group: Group) -> Tensor:
    """scatter_row_sums, whose gradient is gathered."""
    return _ScatterSum.apply(rows, group)  # type: ignore[no-untyped-call,no-any-return]


def enter(x: Tensor, group: Group) -> Tensor:
    """All hold x and use it differently; their gradients add up."""
    return _Enter.apply(x, group)  # type: ignore[no-untyped-call,no-any-return]


def leave(x: Tensor, group: Group) -> Tensor:
    """Each holds a summand: the sum, whose gradient is for everyone."""
    return _Leave.apply(x, group)  # type: ignore[no-untyped-call,no-any-return]
