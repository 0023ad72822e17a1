"""Rank program of coalesced collectives: several tensors in one call, or several calls as one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from parproof.programs.collective_forms import Held, Own, own_group, require_handle
from parproof.programs.collectives import Laid
from parproof.programs.packing import Packed, pack
from parproof.ranks.context import RankContext
from parproof.subjects.collectives_protocol import BatchedCall, CoalescedCollectives
from parproof.subjects.protocol import SubjectRef
from parproof.workloads.collective_cases import buffers
from parproof.workloads.collective_coalesced import Coalesced


def coalesced(
    ctx: RankContext,
    subject: SubjectRef,
    batches: Sequence[Coalesced],
    groups: Sequence[Sequence[int]],
) -> tuple[list[tuple[bool, bool]], Packed]:
    """Each batch in a ledger phase of its own. The last rank of a group joins an asynchronous one when others have looked.

    Returns (whether this rank's handle called itself complete at that moment, and after `wait`; what every buffer
    holds, in the order of the batches' cases). A rank outside the groups calls like the others.
    """
    made, own = subject.make("coalesced_collectives"), own_group(ctx, groups)
    held = Held(own)
    flags: list[tuple[bool, bool]] = []
    found: list[Tensor] = []
    for number, batch in enumerate(batches):
        laids = [Laid(ctx, case, buffers(case, own.p, max(own.me, 0))) for case in batch.parts]
        with ctx.phase(f"case{number}"):
            if batch.is_async and own.me >= 0:
                flags.append(held.run(number, functools.partial(_started, made, batch, laids, own)))
            else:
                call(made, batch, laids, own)
                flags.append((False, True))
        found += [x for laid in laids for x in laid.after()]
    return flags, pack(found)


def call(made: CoalescedCollectives, batch: Coalesced, laids: Sequence[Laid], own: Own) -> Any:
    """Make the one call that the batch names."""
    options: dict[str, Any] = {"group": own.group, "async_op": batch.is_async}
    if batch.form == "all_reduce_coalesced":
        xs = [laid.of("inout")[0] for laid in laids]
        return made.all_reduce_coalesced(xs, str(batch.parts[0].reduce_op), **options)
    if batch.form == "all_gather_coalesced":
        outs = [list(of_rank) for of_rank in zip(*(laid.of("out") for laid in laids), strict=True)]
        return made.all_gather_coalesced(outs, [laid.of("in")[0] for laid in laids], **options)
    return made.together([_arguments(laid) for laid in laids], **options)


def _arguments(laid: Laid) -> BatchedCall:
    case = laid.case
    if case.op == "all_reduce":
        return case.op, (laid.of("inout")[0], case.reduce_op)
    pair = laid.of("out")[0], laid.of("in")[0]
    return case.op, pair if case.op == "all_gather_single" else (*pair, case.reduce_op)


def _started(made: CoalescedCollectives, batch: Coalesced, laids: Sequence[Laid], own: Own) -> Any:
    return require_handle(call(made, batch, laids, own), batch.form, batch.capabilities[0])
