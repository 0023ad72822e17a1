"""Functional collectives, their autograd versions, the older names, and torch.distributed.nn.functional."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as nn_functional
from torch import Tensor

from parproof import torch_names
from parproof.programs.kinds.asked import Asked, Kind
from parproof.programs.kinds.classic import B, four
from parproof.ranks.context import RankContext

_native = torch.ops._c10d_functional
_legacy = torch.ops.c10d_functional


def _waited(*tensors: Tensor) -> None:
    for tensor in tensors:
        functional.wait_tensor(tensor)


def _with_backward(call: Callable[[Tensor], Tensor], num: int) -> None:
    """The call on 4·num elements that need a gradient, and its backward, from a gradient with memory of its own."""
    found = call(four(num).requires_grad_())
    found.backward(torch.ones_like(found))


def _asked(op: str, given: int, back: int, **more: object) -> Asked:
    """Functional calls are asynchronous by nature. In units of B bytes."""
    return Asked(op, given * B, back * B, is_async=True, **more)  # type: ignore[arg-type]


def _sum(op: str, given: int, back: int) -> Asked:
    return _asked(op, given, back, reduce_op="sum")


def _scatter_of(root: int, rank: int, world: int) -> Asked:
    return Asked("scatter", world * B * (rank == root), B, peer=root)


def _shift(ctx: RankContext) -> list[int]:
    return [(rank + 1) % ctx.world_size for rank in range(ctx.world_size)]


def _shift_asked(rank: int, world: int) -> Sequence[Asked]:
    return [_asked("all_to_all", 1, 1)]


KINDS = [
    Kind(
        "all_reduce",
        lambda ctx: _waited(functional.all_reduce(four(), "sum", ctx.group)),
        lambda r, w: [_sum("all_reduce", 1, 1)],
    ),
    Kind(
        "all_reduce_in_place",
        lambda ctx: _waited(_native.all_reduce_(four(), "max", ctx.group.group_name)),
        lambda r, w: [_asked("all_reduce", 1, 1, reduce_op="max")],
    ),
    Kind(
        "all_reduce_coalesced",
        lambda ctx: _waited(*functional.all_reduce_coalesced([four(), four(2)], "avg", ctx.group)),
        lambda r, w: [_asked("all_reduce", 3, 3, reduce_op="avg")],
    ),
    Kind(
        "all_gather",
        lambda ctx: _waited(torch_names.functional_all_gather(four().view(2, 2), 1, ctx.group)),
        lambda r, w: [_asked("all_gather", 1, w)],
    ),
    Kind(
        "all_gather_out",
        lambda ctx: _waited(
            _native.all_gather_into_tensor_out(
                four(), ctx.world_size, ctx.group.group_name, out=four(ctx.world_size)
            )
        ),
        lambda r, w: [_asked("all_gather", 1, w)],
    ),
    Kind(
        "all_gather_coalesced",
        lambda ctx: _waited(*torch_names.functional_all_gather_coalesced([four(), four(2)], ctx.group)),
        lambda r, w: [_asked("all_gather", 3, 3 * w)],
    ),
    Kind(
        "reduce_scatter",
        lambda ctx: _waited(torch_names.functional_reduce_scatter(four(ctx.world_size), "sum", 0, ctx.group)),
        lambda r, w: [_sum("reduce_scatter", w, 1)],
    ),
    Kind(
        "reduce_scatter_coalesced",
        lambda ctx: _waited(
            *torch_names.functional_reduce_scatter_coalesced(
                [four(ctx.world_size), four(2 * ctx.world_size)], "sum", [0, 0], ctx.group
            )
        ),
        lambda r, w: [_sum("reduce_scatter", 3 * w, 3)],
    ),
    Kind(
        "all_to_all",
        lambda ctx: _waited(functional.all_to_all_single(four(ctx.world_size), None, None, ctx.group)),
        lambda r, w: [_asked("all_to_all", w, w)],
    ),
    Kind(
        "permute",
        lambda ctx: _waited(functional.permute_tensor(four(), _shift(ctx), ctx.group)),
        _shift_asked,
    ),
    Kind(
        "broadcast",
        lambda ctx: _waited(functional.broadcast(four(), 1, ctx.group)),
        lambda r, w: [_asked("broadcast", 1, 1, peer=1)],
    ),
    Kind(
        "older_name",
        lambda ctx: _waited(
            _legacy.all_reduce(four(), "sum", "", list(range(ctx.world_size)), ctx.world_size)
        ),
        lambda r, w: [_sum("all_reduce", 1, 1)],
    ),
    Kind(
        "all_reduce_backward",
        lambda ctx: _with_backward(lambda x: functional.all_reduce(x, "sum", ctx.group), 1),
        lambda r, w: [_sum("all_reduce", 1, 1)] * 2,
    ),
    Kind(
        "all_gather_backward",
        lambda ctx: _with_backward(lambda x: torch_names.functional_all_gather_autograd(x, 0, ctx.group), 1),
        lambda r, w: [_asked("all_gather", 1, w), _sum("reduce_scatter", w, 1)],
    ),
    Kind(
        "reduce_scatter_backward",
        lambda ctx: _with_backward(
            lambda x: torch_names.functional_reduce_scatter_autograd(x, "sum", 0, ctx.group), ctx.world_size
        ),
        lambda r, w: [_sum("reduce_scatter", w, 1), _asked("all_gather", 1, w)],
    ),
    Kind(
        "all_to_all_backward",
        lambda ctx: _with_backward(
            lambda x: functional.all_to_all_single_autograd(
                x, [4] * ctx.world_size, [4] * ctx.world_size, ctx.group
            ),
            ctx.world_size,
        ),
        lambda r, w: [_asked("all_to_all", w, w)] * 2,
    ),
    Kind(
        "nn_all_reduce",
        lambda ctx: _with_backward(lambda x: nn_functional.all_reduce(x), 1),
        lambda r, w: [Asked("all_reduce", B, B, reduce_op="sum")] * 2,
    ),
    Kind(
        "nn_broadcast",
        lambda ctx: _with_backward(lambda x: nn_functional.broadcast(x, 0), 1),
        lambda r, w: [Asked("broadcast", B, B, peer=0), Asked("reduce", B, B, reduce_op="sum", peer=0)],
    ),
    Kind(
        "nn_all_to_all_single",
        lambda ctx: _with_backward(
            lambda x: nn_functional.all_to_all_single(four(ctx.world_size), x), ctx.world_size
        ),
        lambda r, w: [Asked("all_to_all", w * B, w * B)] * 2,
    ),
    # Without a backend that scatters a list at once, torch gives the gradient of an all_gather by scatters.
    Kind(
        "nn_all_gather",
        lambda ctx: _with_backward(lambda x: torch.cat(nn_functional.all_gather(x)), 1),
        lambda r, w: [
            Asked("all_gather", B, w * B),
            *(_scatter_of(root, r, w) for root in range(w)),
        ],
    ),
    Kind(
        "nn_reduce_scatter",
        lambda ctx: _with_backward(
            lambda x: nn_functional.reduce_scatter(four(), list(x.chunk(ctx.world_size))), ctx.world_size
        ),
        lambda r, w: [Asked("reduce_scatter", w * B, B, reduce_op="sum"), Asked("all_gather", B, w * B)],
    ),
    Kind(
        "nn_gather",
        lambda ctx: _with_backward(lambda x: torch.cat(nn_functional.gather(x, 0)), 1),
        lambda r, w: [Asked("gather", B, w * B * (r == 0), peer=0), _scatter_of(0, r, w)],
    ),
    Kind(
        "nn_scatter",
        lambda ctx: _with_backward(
            lambda x: nn_functional.scatter(list(x.chunk(ctx.world_size)), 0), ctx.world_size
        ),
        lambda r, w: [_scatter_of(0, r, w), Asked("gather", B, w * B * (r == 0), peer=0)],
    ),
    Kind(
        "nn_reduce",
        lambda ctx: _with_backward(lambda x: nn_functional.reduce(x, 0), 1),
        lambda r, w: [Asked("reduce", B, B, reduce_op="sum", peer=0), Asked("broadcast", B, B, peer=0)],
    ),
    # On gloo a list goes by a scatter from each rank, and so does its gradient.
    Kind(
        "nn_all_to_all",
        lambda ctx: _with_backward(
            lambda x: torch.cat(
                nn_functional.all_to_all(
                    [four() for _ in range(ctx.world_size)], list(x.chunk(ctx.world_size))
                )
            ),
            ctx.world_size,
        ),
        lambda r, w: [_scatter_of(root, r, w) for root in range(w)] * 2,
    ),
    # Its gradient is refused on gloo.
    Kind(
        "nn_all_gather_base",
        lambda ctx: nn_functional._all_gather_base(four(ctx.world_size), four()),
        lambda r, w: [Asked("all_gather", B, w * B)],
    ),
]
