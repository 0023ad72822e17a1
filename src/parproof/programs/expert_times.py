"""Rank program of PAR-EXPERT-DISPATCH that calls one layer again and again, and tells what its exchanges took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from parproof.programs.expert import axes_of
from parproof.ranks.context import RankContext
from parproof.subjects.protocol import SubjectRef
from parproof.workloads.expert import Case
from parproof.workloads.expert_meshes import Mesh

EXCHANGE = "gloo:all_to_all"


@dataclass
class Called:
    """One case on one rank: output of each call; seconds of its forward pass and of its last two exchanges.

    dispatch_s and combine_s include the wait for the slowest rank, as every rank's exchange does; where the profiler
    did not show the exchanges they are empty, and not_timed says what it showed instead.
    """

    outputs: list[Tensor] = field(default_factory=list)
    forward_s: list[float] = field(default_factory=list)
    dispatch_s: list[float] = field(default_factory=list)
    combine_s: list[float] = field(default_factory=list)
    not_timed: str = ""


def call_after_call(
    ctx: RankContext, subject: SubjectRef, mesh: Mesh, cases: Sequence[Case], calls: int
) -> list[Called]:
    """Forward passes of one layer over the cases in turn, with the start aligned."""
    axes = axes_of(ctx, mesh)
    layer = subject.make("expert").layer(cases[0].plan, cases[0].params, axes)
    made = [Called() for _ in cases]
    shards = [case.shards[mesh.shard(ctx.rank)] for case in cases]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(calls):
            for called, shard in zip(made, shards, strict=True):
                ctx.group.barrier().wait()
                started_s = time.perf_counter()
                out = layer(shard.x, shard.valid)
                called.forward_s.append(time.perf_counter() - started_s)
                called.outputs.append(out.detach().clone())
    events = [(e.name, e.time_range.start, e.time_range.end) for e in profile.events() or ()]
    give_exchanges(made, events, calls)
    return made


def give_exchanges(made: Sequence[Called], events: Sequence[tuple[str, float, float]], calls: int) -> None:
    """Deal out (name, start, end) in µs of a profile, over `calls` rounds of all cases; the last two of each are kept."""
    spans = sorted((start, end) for name, start, end in events if name == EXCHANGE)
    each, left = divmod(len(spans), calls * len(made))
    if each < 2 or left:
        others = sorted({name for name, _, _ in events if "gloo" in name} - {EXCHANGE})
        for called in made:
            called.not_timed = (
                f"{len(spans)} events {EXCHANGE!r} in {calls * len(made)} forward passes, expected two or more of"
                f" each; other events of the backend: {', '.join(others) or 'none'}"
            )
        return
    for call in range(calls):
        for place, called in enumerate(made):
            last = (call * len(made) + place + 1) * each
            (a, b), (c, d) = spans[last - 2 : last]
            called.dispatch_s.append((b - a) * 1e-6)
            called.combine_s.append((d - c) * 1e-6)
