"""Wire checks: the bytes that left a rank equal what the backend's model makes of the calls in the ledger."""

from __future__ import annotations

import math
from collections.abc import Sequence

from parproof.cost.wire import Transfer, Wire, wire
from parproof.errors import Unsupported
from parproof.ledger.rows import Row
from parproof.ledger.wire import WireSample


def predicted_wire(rows: Sequence[Row], rank: int, *, backend: str = "gloo") -> Wire:
    """What the backend sends for these calls of global rank `rank`, control traffic included."""
    return sum((wire(transfer_of(row, rank), backend) for row in rows), Wire())


def transfer_of(row: Row, rank: int) -> Transfer:
    """A ledger row as the transport sees it. Lists that a call has for each member come from the row."""
    sizes = [math.prod(shape) for shape in row.shapes]
    held = row.in_bytes or (row.out_bytes if row.op in ("recv", "scatter") else 0)
    num_elements = sum(sizes)
    element_bytes = held // num_elements if num_elements else 1
    peer = row.peer
    return Transfer(
        op=row.op,
        form=row.form,
        rank=row.members.index(rank),
        size=len(row.members),
        tensor_bytes=tuple(size * element_bytes for size in sizes),
        element_bytes=max(1, element_bytes),
        root=row.members.index(peer) if peer in row.members else None,
        in_parts=row.in_parts,
    )


def assert_wire(
    rows: Sequence[Row], sample: WireSample, *, rank: int, where: str, backend: str = "gloo"
) -> int:
    """The bytes that left the rank inside a wire sample equal the model, exactly. Returns them.

    rows   the whole ledger of the rank: the sample knows which of them fell inside
    Exact because gloo's messages are counted one by one; there is no tolerance to hide in.
    Raises Unsupported (a skip with its reason) where the kernel does not count or the backend has no model.
    """
    __tracebackhide__ = True
    if sample.sent_bytes is None:
        raise Unsupported(f"wire bytes not measured: {sample.not_measured}", where=where)
    inside = rows[slice(*sample.rows)]
    expected = predicted_wire(inside, rank, backend=backend)
    if sample.sent_bytes != expected.sent_bytes:
        calls = ", ".join(sorted({row.op for row in inside})) or "no call"
        raise AssertionError(
            f"{where}: {sample.sent_bytes} bytes left the rank, expected {expected.sent_bytes} for {calls}"
            f" ({expected.payload_bytes} bytes of payload, {expected.num_sent} messages sent,"
            f" {expected.num_received} received)"
        )
    return sample.sent_bytes
