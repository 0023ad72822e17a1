"""What can go wrong between ranks, and the words in which it has to be reported. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

SUM, MAX, INT_SUM, BROADCAST = (
    f"collectives.{kind}.contiguous"
    for kind in (
        "all_reduce.sum.float32",
        "all_reduce.max.float32",
        "all_reduce.sum.int32",
        "broadcast.move.float32",
    )
)


DEADLINE_S = 4.0
PATIENCE_S = (
    0.1  # the ledgers have told by then; whoever times out by itself does so before its peers have returned
)


@dataclass(frozen=True)
class Accident:
    """One accident, caused by rank 1 (or by the death of rank 2).

    cause         text (regex) that the diagnosis must contain
    in_subgroup   rank 0 has no part in it
    needs         capabilities that the program of it uses
    """

    cause: str
    world_size: int = 3
    in_subgroup: bool = False
    needs: tuple[str, ...] = (SUM,)


_TIMED_OUT = "[Tt]imed out waiting 300ms"
ABSENT = "rank 1 of 3: returned without joining"

ACCIDENTS: dict[str, Accident] = {
    "operation": Accident("operation differs", needs=(SUM, BROADCAST)),
    "root": Accident("root differs", needs=(SUM, BROADCAST)),
    "reduce_op": Accident("reduce op differs", needs=(SUM, MAX)),
    "dtype": Accident("dtype differs", needs=(SUM, INT_SUM)),
    "shape": Accident("shape differs"),
    "order": Accident("reduce op differs", needs=(SUM, MAX)),
    "missing": Accident(ABSENT),
    "new_group_timeout": Accident(_TIMED_OUT),
    "set_timeout": Accident(_TIMED_OUT),
    "message_timeout": Accident(_TIMED_OUT, needs=(SUM, "point_to_point.chain.contiguous")),
    "killed": Accident("rank 2 of 4: was killed by SIGKILL", world_size=4, in_subgroup=True),
}

LEFT_TO_TORCH: dict[str, Accident] = {
    "world_size": Accident("joined with world size 4 by 3 ranks"),
    "duplicate_rank": Accident("ranks 0, 1 both joined as rank 0 of 3"),
    "operation_timeout": Accident(f"{_TIMED_OUT}|returned without joining"),
}
"""Accidents outside any subject: torch's own rendezvous, and the timeout of one call."""
