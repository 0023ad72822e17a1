"""Rank programs of point-to-point messages and of object collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from parproof.oracles.collective_messages import sent_object
from parproof.programs.collective_forms import Own, own_group
from parproof.programs.collectives import bitwise_copy
from parproof.programs.packing import Packed, pack
from parproof.ranks.context import RankContext
from parproof.subjects.collectives_protocol import Handle, ObjectCollectives, PointToPoint, Transfer
from parproof.subjects.protocol import SubjectRef
from parproof.workloads.collective_cases import BEFORE_SLOT, SHAPE, SHAPES
from parproof.workloads.collective_forms import ROOT, message_dtypes, object_receiver
from parproof.workloads.collectives import coded, laid_out, surroundings


class Mailbox:
    """One rank's messages of one dtype and layout: makes what is sent, keeps what arrives."""

    def __init__(self, ctx: RankContext, shape: tuple[int, ...], dtype: str, layout: str, tag: int) -> None:
        self.tag = tag
        self._ctx, self._shape, self._dtype, self._layout = ctx, shape, dtype, layout
        self._targets: list[tuple[Tensor, Tensor]] = []
        self.unfinished: list[str] = []

    def outgoing(self, slot: int) -> Tensor:
        """The message of this rank with this number."""
        values = coded(self._ctx.rank, slot, self._shape, self._dtype, None).to(self._ctx.device)
        return laid_out(values, self._layout)[0]

    def incoming(self) -> Tensor:
        """Room for one message; it holds something else before."""
        slot = BEFORE_SLOT + len(self._targets)
        values = coded(self._ctx.rank, slot, self._shape, self._dtype, None).to(self._ctx.device)
        self._targets.append(laid_out(values, self._layout))
        return self._targets[-1][0]

    def wait_for(self, handles: Sequence[Handle]) -> None:
        """Wait for each, then ask it whether it is complete."""
        for number, handle in enumerate(handles):
            handle.wait()
            if not handle.is_completed():
                self.unfinished.append(f"handle {number}")

    def arrived(self) -> list[Tensor]:
        """Each message, then what surrounds it."""
        found = []
        for view, base in self._targets:
            found += [bitwise_copy(view), surroundings(base, self._shape, self._layout)]
        return found


def messages(
    ctx: RankContext,
    subject: SubjectRef,
    patterns: Sequence[tuple[str, str]],
    groups: Sequence[Sequence[int]],
) -> tuple[list[int], list[str], Packed] | None:
    """Each (pattern, layout) on each dtype of the layout.

    Returns (claimed senders as places in the group, handles that are not complete after `wait`, what arrived).
    """
    made: PointToPoint = subject.make("point_to_point")
    own = own_group(ctx, groups)
    if own.me < 0:
        return None
    senders: list[int] = []
    found: list[Tensor] = []
    tag = 0
    unfinished: list[str] = []
    for kind, layout in patterns:
        for dtype in message_dtypes(layout):
            # A tag for each: a receive from any source could else take the next dtype's message of a fast sender.
            box = Mailbox(ctx, SHAPES.get(layout, SHAPE), dtype, layout, tag)
            with ctx.phase(kind), ctx.phase(layout), ctx.phase(dtype):
                senders += _PATTERNS[kind](made, box, own.group, own.p, own.me)
            found += box.arrived()
            unfinished += [f"{kind} {dtype} {layout}: {word}" for word in box.unfinished]
            tag += 10
    return senders, unfinished, pack(found)


def _chain(made: PointToPoint, box: Mailbox, group: Any, p: int, me: int) -> list[int]:
    """Blocking: each rank hands its own message to the next one, the last one to nobody."""
    senders = [] if me == 0 else [made.recv(box.incoming(), me - 1, box.tag, group)]
    if me < p - 1:
        made.send(box.outgoing(0), me + 1, box.tag, group)
    return senders


def _isend_irecv(made: PointToPoint, box: Mailbox, group: Any, p: int, me: int) -> list[int]:
    """A ring in both directions at once."""
    right, left = (me + 1) % p, (me - 1) % p
    handles = [made.irecv(box.incoming(), left, 1, group), made.irecv(box.incoming(), right, 2, group)]
    handles += [made.isend(box.outgoing(0), right, 1, group), made.isend(box.outgoing(1), left, 2, group)]
    box.wait_for(handles)
    return [left, right]


def _tags(made: PointToPoint, box: Mailbox, group: Any, p: int, me: int) -> list[int]:
    """Two messages to the next rank; it asks for the second one first, by its tag."""
    right, left = (me + 1) % p, (me - 1) % p
    sending = [made.isend(box.outgoing(0), right, 7, group), made.isend(box.outgoing(1), right, 3, group)]
    for tag in (3, 7):
        box.wait_for([made.irecv(box.incoming(), left, tag, group)])
    box.wait_for(sending)
    return [left, left]


def _any_source(made: PointToPoint, box: Mailbox, group: Any, p: int, me: int) -> list[int]:
    """The first rank takes one message of each, in whatever order they come."""
    if me:
        made.send(box.outgoing(0), 0, box.tag, group)
        return []
    return [made.recv(box.incoming(), None, box.tag, group) for _ in range(p - 1)]


def _batch(made: PointToPoint, box: Mailbox, group: Any, p: int, me: int) -> list[int]:
    """Everybody to everybody; half of the ranks list their receives first."""
    others = [j for j in range(p) if j != me]
    sends: list[Transfer] = [("send", box.outgoing(j), j) for j in others]
    receives: list[Transfer] = [("recv", box.incoming(), j) for j in others]
    box.wait_for(made.batch(receives + sends if me % 2 else sends + receives, group))
    return others


def _functional(made: PointToPoint, box: Mailbox, group: Any, p: int, me: int) -> list[int]:
    """A ring in one call; a subject may give back other memory than the room it was handed."""
    right, left = (me + 1) % p, (me - 1) % p
    room = box.incoming()
    arrived = made.exchange(box.outgoing(0), room, right, left, box.tag, group)
    if arrived.data_ptr() != room.data_ptr():
        room.copy_(arrived)
    return [left]


_PATTERNS = {
    "chain": _chain,
    "isend_irecv": _isend_irecv,
    "tags": _tags,
    "any_source": _any_source,
    "batch": _batch,
    "functional": _functional,
}


def objects(
    ctx: RankContext, subject: SubjectRef, ops: Sequence[str], groups: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """Object collectives, the root in second place of the group; what this rank gets by each."""
    made, own = subject.make("object_collectives"), own_group(ctx, groups)
    found = {}
    for op in ops if own.me >= 0 else ():
        with ctx.phase(op):
            found[op] = _object(made, op, sent_object(ctx.rank), ctx.rank, own)
    return found


def _object(made: ObjectCollectives, op: str, mine: Any, rank: int, own: Own) -> Any:
    p, me, group, receiver = own.p, own.me, own.group, object_receiver(own.p)
    match op:
        case "all_gather_object":
            return made.all_gather_object(mine, group)
        case "gather_object":
            return made.gather_object(mine, ROOT, group)
        case "broadcast_objects":
            return made.broadcast_objects([mine, "second"] if me == ROOT else None, 2, ROOT, group)
        case "scatter_object":
            values = [(mine, j) for j in range(p)] if me == ROOT else None
            return made.scatter_object(values, ROOT, group)
    if me == ROOT:
        made.send_objects([mine, rank], receiver, group)
    return made.recv_objects(2, ROOT, group) if me == receiver else None
