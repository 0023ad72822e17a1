"""Who gets which message, and which object, in each pattern: written down, not computed by sending."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def expected_messages(kind: str, p: int, me: int) -> list[tuple[int, int]]:
    """(sender's place in the group, number of its message) for each message that rank `me` takes, in order.

    any_source: in any order.
    """
    right, left = (me + 1) % p, (me - 1) % p
    others = [j for j in range(p) if j != me]
    return {
        "chain": [(left, 0)] if me else [],
        "isend_irecv": [(left, 0), (right, 1)],
        "tags": [(left, 1), (left, 0)],
        "any_source": [] if me else [(j, 0) for j in others],
        "batch": [(j, me) for j in others],
        "functional": [(left, 0)],
    }[kind]


def sent_object(rank: int) -> dict[str, Any]:
    """An object whose pickled size differs from rank to rank by orders of magnitude."""
    return {"rank": rank, "nested": [(rank, i) for i in range(7**rank % 1000)], "text": "ab" * rank}


def handed_in(op: str, members: Sequence[int]) -> list[Any]:
    """The objects that have to be moved: one of each rank, or those that the group's second rank hands out."""
    objects = [sent_object(rank) for rank in members]
    of_the_second: dict[str, list[Any]] = {
        "broadcast_objects": [objects[1], "second"],
        "scatter_object": [(objects[1], j) for j in range(len(members))],
        "send_objects": [objects[1], members[1]],
    }
    return of_the_second.get(op, objects)


def expected_object(op: str, members: Sequence[int], me: int) -> Any:
    """What rank `me` of the group gets; the root is the group's second rank."""
    root = 1
    objects = [sent_object(rank) for rank in members]
    receiver = (root + 1) % len(members)
    return {
        "all_gather_object": objects,
        "gather_object": objects if me == root else None,
        "broadcast_objects": [objects[root], "second"],
        "scatter_object": (objects[root], me),
        "send_objects": [objects[root], members[root]] if me == receiver else None,
    }[op]
