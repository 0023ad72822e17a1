"""How far a call moves its group's own sequence number: what tells that a ledger is complete. No torch here.

Every backend counts the collectives of a group. A count that the rows do not explain means that something was
sent past the dispatcher (a backend called directly, a thread of C++), so the ledger must not be believed.
"""

from __future__ import annotations

from parproof.ledger.rows import Row

# Measured on gloo only. NCCL numbers point-to-point and coalesced calls apart.
COUNTED_BACKENDS = frozenset({"gloo"})


def steps(row: Row, rank: int) -> int:
    """Steps of the sequence number of gloo for this call by global rank `rank`.

    gloo runs reduce_scatter of a list as one all_reduce for each member, a coalesced reduce_scatter as one for
    each tensor, and the monitored barrier as sends and receives through its first rank.
    """
    if row.op == "monitored_barrier":
        peers = len(row.members) - 1
        return 2 * peers if rank == row.members[0] else 2
    if row.op == "reduce_scatter" and row.form == "list":
        return len(row.members)
    if row.op == "reduce_scatter" and row.form.endswith("coalesced"):
        return len(row.shapes)
    return 1


def gap(group: str, counted: int, explained: int) -> str:
    """What is missing, in words; empty when the rows explain the group's own count."""
    if counted == explained:
        return ""
    return f"group {group} counts {counted} calls, the ledger explains {explained}"
