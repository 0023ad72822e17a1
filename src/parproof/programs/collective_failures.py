"""Rank programs in which something goes wrong on purpose: rank 1 does it, or a timeout is set and rank 1 stays away."""

from __future__ import annotations

import datetime
import os
import signal
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from parproof.ranks.context import RankContext
from parproof.subjects.collectives_protocol import Collectives
from parproof.subjects.protocol import SubjectRef
from parproof.workloads.collective_accidents import ACCIDENTS

TIMEOUT_S = 0.3
AWAY_S = 0.4  # the one who stays away comes back when the others have given up


def _input(ctx: RankContext, count: int = 4, dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.arange(count) + 10 * ctx.rank).to(dtype).to(ctx.device)


def accident(ctx: RankContext, subject: SubjectRef, name: str) -> None:
    """Play one of workloads.collective_accidents.ACCIDENTS, if the subject provides all that it takes."""
    for capability in (f"collectives.diagnosis.{name}", *ACCIDENTS[name].needs):
        subject.require(capability)
    made: Collectives = subject.make("collectives")
    if name in ("new_group_timeout", "set_timeout", "message_timeout"):
        _stay_away(ctx, subject, made, name)
    elif name == "killed":
        _killed_before_first_use(ctx, made)
    else:
        _mismatch(ctx, made, name)


def _mismatch(ctx: RankContext, made: Collectives, name: str) -> None:
    """Every rank calls; rank 1 differs in one respect."""
    odd, group = ctx.rank == 1, ctx.group
    match name:
        case "operation" if odd:
            made.broadcast(_input(ctx), 0, group)
        case "root":
            made.broadcast(_input(ctx), int(odd), group)
        case "reduce_op":
            made.all_reduce(_input(ctx), "max" if odd else "sum", group)
        case "dtype":
            made.all_reduce(_input(ctx, dtype=torch.int32 if odd else torch.float32), "sum", group)
        case "shape":
            made.all_reduce(_input(ctx, 8 if odd else 4), "sum", group)
        case "order":
            for reduce_op in ("max", "sum") if odd else ("sum", "max"):
                made.all_reduce(_input(ctx), reduce_op, group)
        case "missing" if odd:
            return
        case _:
            made.all_reduce(_input(ctx), "sum", group)


def _stay_away(ctx: RankContext, subject: SubjectRef, made: Collectives, name: str) -> None:
    """The others call, under the group's timeout; rank 1 does something else meanwhile and ends well."""
    limit = datetime.timedelta(seconds=TIMEOUT_S)
    group: Any = ctx.group
    if name == "new_group_timeout":
        group = dist.new_group(list(range(ctx.world_size)), timeout=limit)
    else:
        dist.distributed_c10d._set_pg_timeout(limit, group)
    made.all_reduce(_input(ctx), "sum", group)  # connects all pairs, and shows that the group works
    if ctx.rank == 1:
        time.sleep(AWAY_S)
    elif name == "message_timeout":
        subject.make("point_to_point").recv(_input(ctx), 1, 0, group)
    else:
        made.all_reduce(_input(ctx), "sum", group)


def _killed_before_first_use(ctx: RankContext, made: Collectives) -> None:
    """Rank 2 dies between the making of a subgroup and its first operation: connections may be lazy."""
    group = dist.new_group(list(range(1, ctx.world_size)))
    if ctx.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if ctx.rank:
        made.all_reduce(_input(ctx), "sum", group)


def torch_times_out(ctx: RankContext, kind: str) -> None:
    """A group of a wrong size, one with two ranks of one number, or a call that rank 1 comes to late."""
    if kind == "operation_timeout":
        _comes_late(ctx)
    else:
        _joins_wrongly(ctx, kind)


def _comes_late(ctx: RankContext) -> None:
    """The timeout of one call, shorter than the group's. torch's own interface: subjects have none for it."""
    if ctx.rank == 1:
        time.sleep(AWAY_S)
        return
    options = dist.AllreduceOptions()
    options.timeout = datetime.timedelta(seconds=TIMEOUT_S)
    ctx.group.allreduce([_input(ctx)], options).wait()


def _joins_wrongly(ctx: RankContext, kind: str) -> None:
    """Leave the good group and meet the others again, in the same store."""
    store = PrefixStore(kind, dist.distributed_c10d._get_default_store())
    dist.destroy_process_group()
    dist.init_process_group(
        ctx.backend,
        store=store,
        rank=0 if kind == "duplicate_rank" and ctx.rank == 1 else ctx.rank,
        world_size=ctx.world_size + (kind == "world_size"),
        timeout=datetime.timedelta(seconds=TIMEOUT_S),
    )
    dist.all_reduce(_input(ctx))


def works(ctx: RankContext, subject: SubjectRef) -> list[float]:
    """What every run after a failure has to be able to do."""
    made: Collectives = subject.make("collectives")
    x = _input(ctx)
    made.all_reduce(x, "sum", ctx.group)
    found: list[float] = x.tolist()
    return found


def sums(ctx: RankContext) -> list[float]:
    """The same by torch itself."""
    x = _input(ctx)
    dist.all_reduce(x)
    found: list[float] = x.tolist()
    return found


def barrier_after_subgroup(ctx: RankContext, subject: SubjectRef) -> list[float]:
    """An operation in a subgroup, then a barrier of all; under DETAIL each is checked."""
    for part in ("all_reduce.sum.float32.contiguous", "all_reduce.max.float32.contiguous", "barrier"):
        subject.require(f"collectives.{part}")
    made: Collectives = subject.make("collectives")
    group = dist.new_group([1, 2])
    x = _input(ctx)
    made.all_reduce(x, "sum", group)
    made.barrier(ctx.group)
    made.all_reduce(x, "max", ctx.group)
    found: list[float] = x.tolist()
    return found


def subgroups(ctx: RankContext, size: int) -> list[list[int]]:
    """Members of this rank's group: as torch cuts the world, and as it cuts the upper half of the world."""
    mine, _ = dist.new_subgroups(group_size=size)
    half = dist.new_group(list(range(ctx.world_size // 2, ctx.world_size)))
    found = [dist.get_process_group_ranks(mine)]
    if ctx.rank >= ctx.world_size // 2:
        single, _ = dist.new_subgroups(group_size=1, group=half)
        found.append(dist.get_process_group_ranks(single))
    return found
