"""Rank programs that measure wire bytes call by call."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from parproof import torch_names, torch_version
from parproof.ledger.wire import WireSample
from parproof.ranks.context import RankContext

# Bytes: empty, smaller than a ring has segments, odd, latency-bound, with several segments of 1 MiB for a rank.
SIZES_BYTES = (0, 4, 20, 65_540, 9 * 2**20 + 4)
OPERATIONS = (
    "all_reduce",
    "all_reduce_coalesced",
    "all_gather",
    "all_gather_single",
    "reduce_scatter",
    "reduce_scatter_single",
    "all_to_all",
    "all_to_all_single",
    "all_to_all_uneven",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send_recv",
    "barrier",
    "monitored_barrier",
)


def every_call(ctx: RankContext, sizes_bytes: tuple[int, ...]) -> dict[str, WireSample]:
    """Each operation once at each size, each in its own wire sample; the last rank is the root."""
    samples = {}
    for operation in OPERATIONS:
        if operation == "all_to_all" and torch_version.before("2.12"):
            continue  # the first gloo that has it
        for size in sizes_bytes[:1] if "barrier" in operation else sizes_bytes:
            call = _call(ctx, operation, size // 4)
            with ctx.wire() as sample:
                call()
            samples[f"{operation} {size}"] = sample
    return samples


def _call(ctx: RankContext, operation: str, num: int) -> Callable[[], object]:
    """The call with its buffers made beforehand; `num` float32 elements a rank."""
    world, me, root = ctx.world_size, ctx.rank, ctx.world_size - 1
    one, other, whole, back = _ones(num), _ones(num), _ones(num * world), _ones(num * world)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(one),
        "all_reduce_coalesced": lambda: dist.all_reduce_coalesced([one, _ones(3)]),
        "all_gather": lambda: dist.all_gather(list(whole.chunk(world)) if num else _empty(world), one),
        "all_gather_single": lambda: torch_names.all_gather_single(whole, one),
        "reduce_scatter": lambda: dist.reduce_scatter(one, [_ones(num) for _ in range(world)]),
        "reduce_scatter_single": lambda: torch_names.reduce_scatter_single(one, whole),
        "all_to_all": lambda: dist.all_to_all(
            [_ones(num) for _ in range(world)], [_ones(num) for _ in range(world)]
        ),
        "all_to_all_single": lambda: dist.all_to_all_single(back, whole),
        "all_to_all_uneven": lambda: _all_to_all_uneven(world, me, num),
        "broadcast": lambda: dist.broadcast(one, root),
        "reduce": lambda: dist.reduce(one, root),
        "gather": lambda: dist.gather(
            one, [_ones(num) for _ in range(world)] if me == root else None, dst=root
        ),
        "scatter": lambda: dist.scatter(
            one, [_ones(num) for _ in range(world)] if me == root else None, src=root
        ),
        "send_recv": lambda: _ring_shift(world, me, one, other),
        "barrier": dist.barrier,
        "monitored_barrier": dist.monitored_barrier,
    }
    return calls[operation]


def _all_to_all_uneven(world: int, me: int, num: int) -> None:
    """Rank i has i + j parts for rank j; the pair (0, 0) is a zero split."""
    splits = [num // 8 * (me + other) for other in range(world)]
    dist.all_to_all_single(_ones(sum(splits)), _ones(sum(splits)), splits, splits)


def _ring_shift(world: int, me: int, sent: Tensor, received: Tensor) -> None:
    if world == 1:
        return
    works = [dist.isend(sent, (me + 1) % world), dist.irecv(received, (me - 1) % world)]
    for work in works:
        assert work is not None
        work.wait()


def _ones(num: int) -> Tensor:
    return torch.ones(num)


def _empty(world: int) -> list[Tensor]:
    return [torch.ones(0) for _ in range(world)]


def in_a_subgroup(ctx: RankContext, members: list[int], num_bytes: int) -> WireSample:
    """One reduce to the subgroup's last member; the other ranks do nothing in their sample."""
    group = dist.new_group(members)
    buffer = _ones(num_bytes // 4)
    with ctx.wire() as sample:
        if ctx.rank in members:
            dist.reduce(buffer, members[-1], group=group)
    return sample


def scatter_and_reduce(ctx: RankContext, num_bytes: int) -> dict[str, WireSample]:
    """One reduce_scatter and one all_reduce of the same whole."""
    whole = _ones(num_bytes // 4)
    with ctx.wire() as scattered:
        torch_names.reduce_scatter_single(_ones(num_bytes // 4 // ctx.world_size), whole)
    with ctx.wire() as reduced:
        dist.all_reduce(whole)
    return {"reduce_scatter": scattered, "all_reduce": reduced}
