"""What the cost model says a rank should send: lines that a ledger can be compared with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """All calls of one operation by one rank.

    in_bytes    bytes the rank hands in, over all calls (logical payload)
    out_bytes   bytes the rank gets back, over all calls
    group_size  ranks in the group; 0 when the prediction holds for any group
    phase       «forward», «backward», …; empty when the prediction holds for all phases together
    members     global ranks of the group, in its order; empty when any group of the size will do
    dtype       «float32», …; empty when the prediction holds for any
    """

    op: str
    calls: int
    in_bytes: int
    out_bytes: int
    group_size: int = 0
    phase: str = ""
    members: tuple[int, ...] = ()
    dtype: str = ""
