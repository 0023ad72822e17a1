"""Classic collectives of torch.distributed: synchronous, asynchronous, coalesced, over a part of the ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import _coalescing_manager

from parproof import torch_names, torch_version
from parproof.programs.kinds.asked import Asked, Kind
from parproof.ranks.context import RankContext

B = 16  # bytes of four float32


def four(num: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    """`num` times four elements."""
    return torch.ones(4 * num, dtype=dtype)


def several(ctx: RankContext) -> list[Tensor]:
    """Four elements for every rank."""
    return [four() for _ in range(ctx.world_size)]


def at_root(ctx: RankContext, root: int) -> list[Tensor] | None:
    """Buffers for every rank, at the root only."""
    return several(ctx) if ctx.rank == root else None


def _uneven(ctx: RankContext) -> None:
    """Rank i has i + j rows of 8 bytes for rank j; one split is empty."""
    splits = [ctx.rank + other for other in range(ctx.world_size)]
    rows = torch.ones(sum(splits), 2)
    dist.all_to_all_single(torch.empty_like(rows), rows, splits, splits)


def _uneven_asked(rank: int, world: int) -> Sequence[Asked]:
    total = 8 * sum(rank + other for other in range(world))
    return [Asked("all_to_all", total, total)]


def _subgroup(ctx: RankContext) -> None:
    """The last two ranks, in a group of their own; its rank 1 is the root."""
    members = [ctx.world_size - 2, ctx.world_size - 1]
    group = dist.new_group(members)
    if ctx.rank in members:
        dist.broadcast(four(), group_src=1, group=group)
        dist.all_reduce(four(), dist.ReduceOp.MAX, group=group, async_op=True).wait()


def _subgroup_asked(rank: int, world: int) -> Sequence[Asked]:
    members = (world - 2, world - 1)
    if rank not in members:
        return []
    shown = None if world == 2 else members
    return [
        Asked("broadcast", B, B, members=shown, peer=world - 1),
        Asked("all_reduce", B, B, members=shown, reduce_op="max", is_async=True),
    ]


def _coalesced_by_manager(ctx: RankContext) -> None:
    """gloo takes the two operations that have a coalesced form; others raise, see the test."""
    with _coalescing_manager():
        dist.all_reduce(four())
        dist.all_reduce(four(2))
    with _coalescing_manager():
        torch_names.all_gather_single(four(ctx.world_size), four())


KINDS = [
    Kind(
        "all_reduce",
        lambda ctx: dist.all_reduce(four()),
        lambda r, w: [Asked("all_reduce", B, B, reduce_op="sum")],
    ),
    Kind(
        "all_reduce_avg_bfloat16",
        lambda ctx: dist.all_reduce(four(dtype=torch.bfloat16), dist.ReduceOp.AVG),
        lambda r, w: [Asked("all_reduce", 8, 8, "bfloat16", reduce_op="avg")],
    ),
    Kind(
        "all_reduce_async_int64",
        lambda ctx: dist.all_reduce(four(dtype=torch.int64), dist.ReduceOp.BXOR, async_op=True).wait(),
        lambda r, w: [Asked("all_reduce", 32, 32, "int64", reduce_op="bxor", is_async=True)],
    ),
    Kind(
        "all_reduce_of_nothing",
        lambda ctx: dist.all_reduce(torch.ones(0)),
        lambda r, w: [Asked("all_reduce", 0, 0, reduce_op="sum")],
    ),
    Kind(
        "all_reduce_coalesced",
        lambda ctx: dist.all_reduce_coalesced([four(), four(2)]),
        lambda r, w: [Asked("all_reduce", 3 * B, 3 * B, reduce_op="sum")],
    ),
    Kind(
        "coalescing_manager",
        _coalesced_by_manager,
        # torch 2.11 hands its gathers over as asynchronous, and waits for them itself.
        lambda r, w: [
            Asked("all_reduce", 3 * B, 3 * B, reduce_op="sum"),
            Asked("all_gather", B, w * B, is_async=torch_version.before("2.12")),
        ],
    ),
    Kind(
        "all_gather",
        lambda ctx: dist.all_gather(several(ctx), four()),
        lambda r, w: [Asked("all_gather", B, w * B)],
    ),
    Kind(
        "all_gather_single",
        lambda ctx: torch_names.all_gather_single(four(ctx.world_size), four()),
        lambda r, w: [Asked("all_gather", B, w * B)],
    ),
    Kind(
        "all_gather_coalesced",
        lambda ctx: dist.all_gather_coalesced(
            [[four(), four(2)] for _ in range(ctx.world_size)], [four(), four(2)]
        ),
        lambda r, w: [Asked("all_gather", 3 * B, 3 * w * B)],
    ),
    Kind(
        "reduce_scatter",
        lambda ctx: dist.reduce_scatter(four(), several(ctx)),
        lambda r, w: [Asked("reduce_scatter", w * B, B, reduce_op="sum")],
    ),
    Kind(
        "reduce_scatter_single",
        lambda ctx: torch_names.reduce_scatter_single(four(), four(ctx.world_size), dist.ReduceOp.MIN),
        lambda r, w: [Asked("reduce_scatter", w * B, B, reduce_op="min")],
    ),
    Kind(
        "all_to_all",
        lambda ctx: dist.all_to_all(several(ctx), several(ctx)),
        lambda r, w: [Asked("all_to_all", w * B, w * B)],
        since="2.12",
    ),
    Kind(
        "all_to_all_single",
        lambda ctx: dist.all_to_all_single(four(ctx.world_size), four(ctx.world_size)),
        lambda r, w: [Asked("all_to_all", w * B, w * B)],
    ),
    Kind("all_to_all_uneven", _uneven, _uneven_asked),
    Kind("broadcast", lambda ctx: dist.broadcast(four(), 1), lambda r, w: [Asked("broadcast", B, B, peer=1)]),
    Kind(
        "reduce",
        lambda ctx: dist.reduce(four(), 1, dist.ReduceOp.PRODUCT),
        lambda r, w: [Asked("reduce", B, B, reduce_op="product", peer=1)],
    ),
    Kind(
        "gather",
        lambda ctx: dist.gather(four(), at_root(ctx, 1), dst=1),
        lambda r, w: [Asked("gather", B, w * B * (r == 1), peer=1)],
    ),
    Kind(
        "scatter",
        lambda ctx: dist.scatter(four(), at_root(ctx, 1), src=1),
        lambda r, w: [Asked("scatter", w * B * (r == 1), B, peer=1)],
    ),
    Kind("barrier", lambda ctx: dist.barrier(), lambda r, w: [Asked("barrier", 0, 0, "none", control=True)]),
    Kind(
        "monitored_barrier",
        lambda ctx: dist.monitored_barrier(),
        lambda r, w: [Asked("monitored_barrier", 0, 0, "none", control=True)],
    ),
    Kind("subgroup", _subgroup, _subgroup_asked),
]
