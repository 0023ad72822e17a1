"""Model parallelism as torch ships it: DTensor, parallelize_module, pipelining, distributed checkpoints."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from parproof.programs.kinds.asked import Asked, Kind
from parproof.ranks.context import RankContext

MICRO_BYTES = 2 * 8 * 4  # 2 rows of 8 float32


def _mesh(ctx: RankContext) -> DeviceMesh:
    return init_device_mesh("cpu", (ctx.world_size,))


def _redistributed(source: Placement, target: Placement) -> Callable[[RankContext], None]:
    """A local tensor of w × w float32, taken from one placement to another."""

    def do(ctx: RankContext) -> None:
        local = torch.ones(ctx.world_size, ctx.world_size)
        DTensor.from_local(local, _mesh(ctx), [source]).redistribute(placements=[target]).to_local()

    return do


def _square(world: int) -> int:
    return world * world * 4


def _distributed(ctx: RankContext) -> None:
    distribute_tensor(torch.ones(2 * ctx.world_size, 4), _mesh(ctx), [Shard(0)])


def _tensor_parallel(ctx: RankContext) -> None:
    """Column then row: both weights scattered, one all_reduce in forward, one for the input's gradient."""
    plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    layers = nn.Sequential(nn.Linear(8, 16, bias=False), nn.Linear(16, 8, bias=False))
    module = parallelize_module(layers, _mesh(ctx), plan)
    module(torch.ones(2, 8, requires_grad=True)).sum().backward()


def _tensor_parallel_asked(rank: int, world: int) -> Sequence[Asked]:
    weight = 8 * 16 * 4
    scatter = Asked("scatter", weight * (rank == 0), weight // world, peer=0)
    reduce = Asked("all_reduce", 64, 64, reduce_op="sum", is_async=True)
    return [scatter, scatter, reduce, reduce]


def _pipeline(schedule: Callable[..., ScheduleGPipe | Schedule1F1B]) -> Callable[[RankContext], None]:
    def do(ctx: RankContext) -> None:
        stage = PipelineStage(
            nn.Linear(8, 8),
            ctx.rank,
            ctx.world_size,
            torch.device("cpu"),
            input_args=(torch.ones(2, 8, requires_grad=True),),
            output_args=(torch.ones(2, 8, requires_grad=True),),
        )
        running = schedule(stage, ctx.world_size, loss_fn=lambda out, target: (out - target).sum())
        batch = torch.ones(2 * ctx.world_size, 8)
        if ctx.rank == 0:
            running.step(batch)
        elif ctx.rank == ctx.world_size - 1:
            running.step(target=batch)
        else:
            running.step()

    return do


def _pipeline_asked(rank: int, world: int) -> Sequence[Asked]:
    """As many micro-batches as stages: activations to the right, gradients to the left.

    Before, the stages agree whether shapes are known: a vote of 4 bytes goes right, its result goes left.
    """
    calls = []
    for neighbour in (rank - 1, rank + 1):
        if 0 <= neighbour < world:
            calls += [Asked("send", MICRO_BYTES, 0, peer=neighbour, tag=0, is_async=True)] * world
            calls += [Asked("recv", 0, MICRO_BYTES, peer=neighbour, tag=0, is_async=True)] * world
            calls.append(Asked("send", 4, 0, "int32", peer=neighbour, tag=0))
            calls.append(Asked("recv", 0, 4, "int32", peer=neighbour, tag=0))
    return calls


def _saved(ctx: RankContext) -> None:
    """Saved and loaded; what the ranks tell each other is bookkeeping."""
    where = [tempfile.mkdtemp(prefix="parproof-kind-") if ctx.rank == 0 else None]
    dist.broadcast_object_list(where)
    with _removed(where[0] if ctx.rank == 0 else None):
        save({"w": torch.ones(4)}, checkpoint_id=where[0])
        load({"w": torch.zeros(4)}, checkpoint_id=where[0])
        dist.barrier()


@contextlib.contextmanager
def _removed(directory: str | None) -> Iterator[None]:
    """The directory's maker removes it."""
    try:
        yield
    finally:
        if directory is not None:
            shutil.rmtree(directory)


def _functional(op: str, given: int, back: int, reduce_op: str | None = None) -> list[Asked]:
    return [Asked(op, given, back, reduce_op=reduce_op, is_async=True)]


KINDS = [
    Kind(
        "distribute_tensor",
        _distributed,
        lambda r, w: [Asked("scatter", 2 * w * 16 * (r == 0), 32, peer=0)],
    ),
    Kind(
        "shard_to_replicate",
        _redistributed(Shard(0), Replicate()),
        lambda r, w: _functional("all_gather", _square(w), w * _square(w)),
    ),
    Kind(
        "partial_to_replicate",
        _redistributed(Partial(), Replicate()),
        lambda r, w: _functional("all_reduce", _square(w), _square(w), "sum"),
    ),
    Kind(
        "partial_to_shard",
        _redistributed(Partial(), Shard(0)),
        lambda r, w: _functional("reduce_scatter", _square(w), _square(w) // w, "sum"),
    ),
    # On CPU torch falls back from an all_to_all to an all_gather and throws most of it away.
    Kind(
        "shard_to_other_dim",
        _redistributed(Shard(0), Shard(1)),
        lambda r, w: _functional("all_gather", _square(w), w * _square(w)),
    ),
    Kind("replicate_to_shard", _redistributed(Replicate(), Shard(0)), lambda r, w: []),
    Kind("parallelize_module", _tensor_parallel, _tensor_parallel_asked),
    Kind("pipeline_1f1b", _pipeline(Schedule1F1B), _pipeline_asked, ordered=False, since="2.12"),
    Kind("pipeline_gpipe", _pipeline(ScheduleGPipe), _pipeline_asked, ordered=False, since="2.12"),
    Kind("checkpoint", _saved, lambda r, w: [], bookkeeping=True),
]
