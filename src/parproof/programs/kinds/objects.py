"""Object collectives: what they send inside is bookkeeping, and every row of it says so."""

from __future__ import annotations

import torch.distributed as dist

from parproof.programs.kinds.asked import Asked, Kind
from parproof.ranks.context import RankContext

OBJECT = 7  # pickles to 5 bytes
OBJECT_BYTES = 5
SIZE_BYTES = 8  # an int64 that tells the size of a pickle


def _send_list(ctx: RankContext) -> None:
    if ctx.rank == 0:
        dist.send_object_list([OBJECT], 1)
    elif ctx.rank == 1:
        dist.recv_object_list([None], 0)


def _control(op: str, given: int, back: int, dtype: str = "uint8", **more: object) -> Asked:
    return Asked(op, given, back, dtype, control=True, **more)  # type: ignore[arg-type]


def _sizes(world: int) -> Asked:
    return _control("all_gather", SIZE_BYTES, world * SIZE_BYTES, "int64")


def _send_asked(rank: int, world: int) -> list[Asked]:
    if rank > 1:
        return []
    messages = ((SIZE_BYTES, "int64"), (OBJECT_BYTES, "uint8"))
    if rank == 0:
        return [_control("send", n, 0, dtype, peer=1, tag=0) for n, dtype in messages]
    return [_control("recv", 0, n, dtype, peer=0, tag=0) for n, dtype in messages]


KINDS = [
    Kind(
        "all_gather_object",
        lambda ctx: dist.all_gather_object([None] * ctx.world_size, OBJECT),
        lambda r, w: [_sizes(w), _control("all_gather", OBJECT_BYTES, w * OBJECT_BYTES)],
    ),
    Kind(
        "gather_object",
        lambda ctx: dist.gather_object(OBJECT, [None] * ctx.world_size if ctx.rank == 1 else None, dst=1),
        lambda r, w: [
            _sizes(w),
            _control("gather", OBJECT_BYTES, w * OBJECT_BYTES * (r == 1), peer=1),
        ],
    ),
    Kind(
        "broadcast_object_list",
        lambda ctx: dist.broadcast_object_list([OBJECT, OBJECT], 1),
        lambda r, w: [
            _control("broadcast", 2 * SIZE_BYTES, 2 * SIZE_BYTES, "int64", peer=1),
            _control("broadcast", 2 * OBJECT_BYTES, 2 * OBJECT_BYTES, peer=1),
        ],
    ),
    Kind(
        "scatter_object_list",
        lambda ctx: dist.scatter_object_list(
            [None], [OBJECT] * ctx.world_size if ctx.rank == 1 else None, src=1
        ),
        lambda r, w: [
            _control("broadcast", SIZE_BYTES, SIZE_BYTES, "int64", peer=1),
            _control("scatter", w * OBJECT_BYTES * (r == 1), OBJECT_BYTES, peer=1),
            _control("scatter", w * SIZE_BYTES * (r == 1), SIZE_BYTES, "int64", peer=1),
        ],
    ),
    Kind("send_object_list", _send_list, _send_asked),
]
