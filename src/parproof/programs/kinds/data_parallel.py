"""Data parallelism as torch ships it: DDP's reducer in C++, hooks, ZeroRedundancyOptimizer, FSDP1 and FSDP2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from parproof.programs.kinds.asked import Asked, Kind
from parproof.ranks.context import RankContext

WEIGHT_BYTES = 64 * 4  # one 8 × 8 float32 weight without bias


def _layer() -> nn.Linear:
    return nn.Linear(8, 8, bias=False)


def _batch() -> Tensor:
    return torch.ones(2, 8)


def _backward(module: nn.Module) -> None:
    module(_batch()).sum().backward()


def _ddp(hook: Callable[..., Any] | None = None, **options: Any) -> Callable[[RankContext], None]:
    def do(ctx: RankContext) -> None:
        module = DistributedDataParallel(_layer(), **options)
        if hook is not None:
            module.register_comm_hook(None, hook)
        _backward(module)

    return do


def _no_sync(ctx: RankContext) -> None:
    module = DistributedDataParallel(_layer())
    with module.no_sync():
        _backward(module)
    _backward(module)


def _buffers(ctx: RankContext) -> None:
    _backward(DistributedDataParallel(nn.Sequential(_layer(), nn.BatchNorm1d(8, affine=False))))


def _chained(bucket: Any) -> Any:
    """Two calls in a chain: the second is made by the backend's thread."""
    work: Any = dist.all_reduce(bucket.buffer(), async_op=True)

    def count(done: Any) -> Tensor:
        dist.all_reduce(torch.ones(1))
        value: Tensor = done.value()[0]
        return value

    return work.get_future().then(count)


def _power_sgd(ctx: RankContext) -> None:
    """Three chained all_reduces from the third step on: uncompressed part, P, Q."""
    # Warns of torch.jit when it is imported, which only the rank may see.
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    module = DistributedDataParallel(nn.Linear(16, 16, bias=False))
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    module.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for _ in range(3):
        module(torch.ones(2, 16)).sum().backward()


def _zero_redundancy(ctx: RankContext) -> None:
    module = nn.Sequential(*(_layer() for _ in range(ctx.world_size)))
    optimizer = ZeroRedundancyOptimizer(module.parameters(), torch.optim.SGD, lr=0.1)
    _backward(module)
    optimizer.step()


def _fsdp1(ctx: RankContext) -> None:
    _backward(FullyShardedDataParallel(_layer(), device_id=torch.device("cpu")))


def _fsdp2(reshard: bool, replicas: int = 1) -> Callable[[RankContext], None]:
    def do(ctx: RankContext) -> None:
        mesh: DeviceMesh | None = None
        if replicas > 1:
            shape = (replicas, ctx.world_size // replicas)
            mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
        module = nn.Sequential(_layer(), _layer())
        for layer in module:
            fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
        fully_shard(module, mesh=mesh, reshard_after_forward=reshard)
        _backward(module)

    return do


def _sum(num_bytes: int, dtype: str = "float32", is_async: bool = True) -> Asked:
    return Asked("all_reduce", num_bytes, num_bytes, dtype, reduce_op="sum", is_async=is_async)


def _made(world: int) -> list[Asked]:
    """DDP compares sizes and strides of the parameters, then spreads rank 0's values. All from C++."""
    return [
        Asked("all_gather", 8, 8 * world, "int64", is_async=True),
        Asked("broadcast", 32, 32, "int64", peer=0, is_async=True),
        Asked("broadcast", WEIGHT_BYTES, WEIGHT_BYTES, peer=0, is_async=True),
    ]


def _batch_norm_asked(rank: int, world: int) -> Sequence[Asked]:
    """Parameters and statistics when it is made, statistics again before the first forward."""
    statistics = [
        Asked("broadcast", n, n, dtype, peer=0, is_async=True) for n, dtype in ((64, "float32"), (8, "int64"))
    ]
    with_statistics = Asked("broadcast", WEIGHT_BYTES + 64, WEIGHT_BYTES + 64, peer=0, is_async=True)
    return [*_made(world)[:2], with_statistics, statistics[1], *statistics, _sum(WEIGHT_BYTES)]


def _power_asked(rank: int, world: int) -> Sequence[Asked]:
    """Buckets are laid out anew before the second step; P and Q are 16 × 1."""
    whole = 16 * 16 * 4
    made = [
        Asked("all_gather", 8, 8 * world, "int64", is_async=True),
        Asked("broadcast", 32, 32, "int64", peer=0, is_async=True),
        Asked("broadcast", whole, whole, peer=0, is_async=True),
    ]
    rebuilt = [Asked("broadcast", n, n, "int32", peer=0, is_async=True) for n in (8, 4)]
    return [*made, _sum(whole), *rebuilt, _sum(whole), _sum(0), _sum(64), _sum(64)]


def _gathers(rank: int, world: int, reshard: bool) -> Sequence[Asked]:
    """Two layers gathered for forward, again for backward if they were freed, each gradient scattered."""
    shard = WEIGHT_BYTES // world
    gather = Asked("all_gather", shard, WEIGHT_BYTES)
    scatter = Asked("reduce_scatter", WEIGHT_BYTES, shard, reduce_op="avg")
    again = 2 if reshard else 0
    return [gather] * (2 + again) + [scatter] * 2


def _hsdp_asked(rank: int, world: int) -> Sequence[Asked]:
    """Shards over neighbours, replicas over ranks two apart; the shard of the gradient is averaged over those."""
    shards = (rank // 2 * 2, rank // 2 * 2 + 1)
    replicas = (rank % 2, rank % 2 + 2)
    half = WEIGHT_BYTES // 2
    gather = Asked("all_gather", half, WEIGHT_BYTES, members=shards)
    scatter = Asked("reduce_scatter", WEIGHT_BYTES, half, members=shards, reduce_op="avg")
    average = Asked("all_reduce", half, half, members=replicas, reduce_op="avg")
    return [gather] * 4 + [scatter, average] * 2


KINDS = [
    Kind("ddp", _ddp(), lambda r, w: [*_made(w), _sum(WEIGHT_BYTES)]),
    Kind("ddp_bucket_view", _ddp(gradient_as_bucket_view=True), lambda r, w: [*_made(w), _sum(WEIGHT_BYTES)]),
    Kind("ddp_without_sync_at_init", _ddp(init_sync=False), lambda r, w: [_sum(WEIGHT_BYTES)]),
    Kind(
        "ddp_static_graph",
        _ddp(static_graph=True),
        lambda r, w: [*_made(w), _sum(4, "int32"), _sum(WEIGHT_BYTES)],
    ),
    Kind("ddp_no_sync", _no_sync, lambda r, w: [*_made(w), _sum(WEIGHT_BYTES)]),
    Kind("ddp_buffers", _buffers, _batch_norm_asked),
    Kind(
        "ddp_hook_all_reduce",
        _ddp(default_hooks.allreduce_hook),
        lambda r, w: [*_made(w), _sum(WEIGHT_BYTES)],
    ),
    Kind(
        "ddp_hook_fp16",
        _ddp(default_hooks.fp16_compress_hook),
        lambda r, w: [*_made(w), _sum(WEIGHT_BYTES // 2, "float16")],
    ),
    Kind(
        "ddp_hook_python",
        _ddp(lambda state, bucket: _chained(bucket)),
        lambda r, w: [*_made(w), _sum(WEIGHT_BYTES), _sum(4, is_async=False)],
    ),
    Kind("ddp_hook_power_sgd", _power_sgd, _power_asked),
    Kind(
        "zero_redundancy_optimizer",
        _zero_redundancy,
        lambda r, w: [
            Asked("broadcast", WEIGHT_BYTES, WEIGHT_BYTES, peer=owner, is_async=True) for owner in range(w)
        ],
    ),
    Kind(
        "fsdp1",
        _fsdp1,
        lambda r, w: [
            Asked("all_gather", WEIGHT_BYTES // w, WEIGHT_BYTES),
            Asked("reduce_scatter", WEIGHT_BYTES, WEIGHT_BYTES // w, reduce_op="sum"),
        ],
    ),
    Kind("fsdp2_reshard", _fsdp2(reshard=True), lambda r, w: _gathers(r, w, reshard=True)),
    Kind("fsdp2_keep", _fsdp2(reshard=False), lambda r, w: _gathers(r, w, reshard=False)),
    Kind("fsdp2_replicated", _fsdp2(reshard=True, replicas=2), _hsdp_asked, min_world=4),
]
