"""Point-to-point: blocking, asynchronous, batched, functional, with tags, from any source, inside a subgroup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from parproof.programs.kinds.asked import Asked, Kind
from parproof.programs.kinds.classic import B, four
from parproof.ranks.context import RankContext

_native = torch.ops._c10d_functional


def _neighbours(ctx: RankContext) -> tuple[int, int]:
    return (ctx.rank + 1) % ctx.world_size, (ctx.rank - 1) % ctx.world_size


def _wait(*works: Any) -> None:
    for work in works:
        work.wait()


def _blocking(ctx: RankContext) -> None:
    if ctx.rank == 0:
        dist.send(four(), 1, tag=7)
    elif ctx.rank == 1:
        dist.recv(four(), 0, tag=7)


def _from_zero_to_one(rank: int, **more: Any) -> Sequence[Asked]:
    """Rank 0 sends four elements to rank 1."""
    if rank > 1:
        return []
    source = more.pop("source", 0)
    return [Asked("send", B, 0, peer=1, **more) if rank == 0 else Asked("recv", 0, B, peer=source, **more)]


def _any_source(ctx: RankContext) -> None:
    if ctx.rank == 0:
        dist.send(four(), 1)
    elif ctx.rank == 1:
        dist.recv(four())


def _ring(ctx: RankContext) -> None:
    right, left = _neighbours(ctx)
    _wait(dist.isend(four(), right, tag=3), dist.irecv(four(), left, tag=3))


def _batch(ctx: RankContext) -> None:
    right, left = _neighbours(ctx)
    operations = [dist.P2POp(dist.isend, four(), right), dist.P2POp(dist.irecv, four(), left)]
    _wait(*dist.batch_isend_irecv(operations))


def _functional(ctx: RankContext) -> None:
    name = ctx.group.group_name
    if ctx.rank == 0:
        functional.wait_tensor(_native.isend(four(), 1, 5, name))
    elif ctx.rank == 1:
        functional.wait_tensor(_native.irecv(four(), 0, 5, name))


def _functional_batch(ctx: RankContext) -> None:
    right, left = _neighbours(ctx)
    name = ctx.group.group_name
    for tensor in _native.batch_p2p_ops(["isend", "irecv"], [right, left], [0, 0], [four(), four()], name):
        functional.wait_tensor(tensor)


def _in_subgroup(ctx: RankContext) -> None:
    """Global ranks are given and global ranks are written down, though the group counts from 0."""
    members = [ctx.world_size - 2, ctx.world_size - 1]
    group = dist.new_group(members)
    if ctx.rank == members[0]:
        dist.send(four(), members[1], group=group)
    elif ctx.rank == members[1]:
        dist.recv(four(), members[0], group=group)


def _in_subgroup_asked(rank: int, world: int) -> Sequence[Asked]:
    first, second = members = (world - 2, world - 1)
    shown = None if world == 2 else members
    if rank not in members:
        return []
    if rank == first:
        return [Asked("send", B, 0, members=shown, peer=second, tag=0)]
    return [Asked("recv", 0, B, members=shown, peer=first, tag=0)]


def _ring_asked(rank: int, world: int, tag: int) -> Sequence[Asked]:
    return [
        Asked("send", B, 0, peer=(rank + 1) % world, tag=tag, is_async=True),
        Asked("recv", 0, B, peer=(rank - 1) % world, tag=tag, is_async=True),
    ]


KINDS = [
    Kind("send_recv", _blocking, lambda r, w: _from_zero_to_one(r, tag=7)),
    Kind("recv_any_source", _any_source, lambda r, w: _from_zero_to_one(r, tag=0, source=-1)),
    Kind("isend_irecv", _ring, lambda r, w: _ring_asked(r, w, 3)),
    Kind("batch_isend_irecv", _batch, lambda r, w: _ring_asked(r, w, 0)),
    Kind("functional", _functional, lambda r, w: _from_zero_to_one(r, tag=5, is_async=True), since="2.12"),
    Kind("functional_batch", _functional_batch, lambda r, w: _ring_asked(r, w, 0), since="2.12"),
    Kind("subgroup", _in_subgroup, _in_subgroup_asked),
]
