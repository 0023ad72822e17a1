"""Rank program of the payload sweep: the value first, then the times, then another value."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from parproof.clock import timed
from parproof.programs.packing import Packed, pack
from parproof.ranks.context import RankContext
from parproof.subjects.collectives_protocol import Collectives
from parproof.subjects.protocol import SubjectRef
from parproof.workloads.collectives import coded

BEFORE, AFTER = 0, 1  # slots of the two inputs whose results are checked


def sweep(
    ctx: RankContext,
    subject: SubjectRef,
    op: str,
    counts: Sequence[int],
    warmup: int,
    repeats: int,
) -> tuple[list[list[float]], Packed]:
    """For each count (float32 elements that one rank contributes or keeps): samples, and two results.

    Returns (samples[size][repeat], results before and after the timed calls, with different inputs).
    """
    kind = "sum" if "reduce" in op else "equal" if op.startswith("all_to_all") else "move"
    subject.require(f"collectives.{op}.{kind}.float32.contiguous")
    made: Collectives = subject.make("collectives")
    samples, results = [], []
    for count in counts:
        payload = Payload(ctx, made, op, count)
        results.append(payload.result(BEFORE))
        payload.out.zero_()  # an all_reduce in place would grow beyond what is exact
        samples.append(timed(ctx, payload.call, warmup=warmup, repeats=repeats))
        results.append(payload.result(AFTER))
    return samples, pack(results)


class Payload:
    """The tensors of one operation and size on this rank, and the call that is timed."""

    def __init__(self, ctx: RankContext, made: Collectives, op: str, count: int) -> None:
        self._ctx, self._made, self._op = ctx, made, op
        whole = count * ctx.world_size
        given = whole if op in ("reduce_scatter_single", "all_to_all_single") else count
        back = {"all_gather_single": whole, "reduce_scatter_single": count}.get(op, given)
        self.x = torch.zeros(given, device=ctx.device)
        self.out = torch.zeros(back, device=ctx.device)

    def call(self) -> None:
        """One call, complete when it returns."""
        made, group = self._made, self._ctx.group
        match self._op:
            case "all_reduce":
                made.all_reduce(self.out, "sum", group)
            case "all_gather_single":
                made.all_gather_single(self.out, self.x, group)
            case "reduce_scatter_single":
                made.reduce_scatter_single(self.out, self.x, "sum", group)
            case "all_to_all_single":
                made.all_to_all_single(self.out, self.x, None, None, group)

    def result(self, slot: int) -> torch.Tensor:
        """A copy of what one call gives for this input."""
        self.x.copy_(coded(self._ctx.rank, slot, tuple(self.x.shape), "float32", "sum"))
        if self._op == "all_reduce":
            self.out.copy_(self.x)
        self.call()
        return self.out.clone()
