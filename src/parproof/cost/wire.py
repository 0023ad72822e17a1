"""Bytes that one rank puts on the wire for one call, by backend: what the transport adds to the payload.

gloo over TCP is modelled message by message and is exact: its algorithms are fixed, so the number of messages and
the size of each follow from the operation, the sizes and the place in the group. Derived in docs/costs.md.
NCCL has no model here: protocol, channels and transport are chosen at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from parproof.errors import Unsupported

# Every message costs its sender a «send ready» notice and a header, its receiver a «receive ready» notice.
HEADER_BYTES = 48
# A ring works on segments of at most this size, at least two for each rank.
SEGMENT_BYTES = 1 << 20
MONITORED_BARRIER_BYTES = 4


@dataclass(frozen=True)
class Wire:
    """What one rank sends: payload, and the messages it sends and receives, which cost headers."""

    payload_bytes: int = 0
    num_sent: int = 0
    num_received: int = 0

    @property
    def sent_bytes(self) -> int:
        """All bytes that leave the rank: payload, two headers a message sent, one a message received."""
        return self.payload_bytes + HEADER_BYTES * (2 * self.num_sent + self.num_received)

    def __add__(self, other: Wire) -> Wire:
        return Wire(
            self.payload_bytes + other.payload_bytes,
            self.num_sent + other.num_sent,
            self.num_received + other.num_received,
        )


@dataclass(frozen=True)
class Transfer:
    """One call as the transport sees it.

    rank, size, root   places in the group, not global ranks; for send and recv, root is the partner
    tensor_bytes       bytes of each tensor handed in (of the buffer, where nothing is handed in)
    element_bytes      size of an element: segments are cut between elements
    in_parts           bytes for each member (all_to_all, scatter and reduce_scatter of a list)
    """

    op: str
    form: str
    rank: int
    size: int
    tensor_bytes: tuple[int, ...]
    element_bytes: int = 1
    root: int | None = None
    in_parts: tuple[int, ...] = ()

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(self.tensor_bytes)


def wire(transfer: Transfer, backend: str = "gloo") -> Wire:
    """Exact wire bytes of one call. Raises Unsupported where there is no model."""
    if backend != "gloo":
        raise Unsupported(
            f"wire bytes of backend {backend} are not modelled",
            expected="gloo over TCP",
            where="cost.wire",
            next_step="compare the logical payload only; read link counters for the wire",
        )
    if transfer.op not in _GLOO:
        raise Unsupported(f"no wire model for {transfer.op}", expected=", ".join(_GLOO), where="cost.wire")
    alone = transfer.size == 1 and transfer.op not in ("send", "recv")
    return Wire() if alone else _GLOO[transfer.op](transfer)


def _all_reduce(transfer: Transfer) -> Wire:
    """Ring of segments: reduce-scatter, then all-gather. Tensors of a coalesced call travel as one."""
    return _ring_all_reduce(transfer, transfer.total_bytes)


def _ring_all_reduce(t: Transfer, total: int) -> Wire:
    """Rank r sends to r−1: every chunk but its own, then every chunk but the one r−1 owns."""
    if total == 0:
        return Wire()
    chunks = _chunks(total, t.size, t.element_bytes)
    mine, left, right = (chunks[(t.rank + step) % t.size] for step in (0, -1, 1))
    payload = 2 * total - sum(mine) - sum(left)
    num = 2 * sum(len(chunk) for chunk in chunks)
    return Wire(payload, num - len(mine) - len(left), num - len(right) - len(mine))


def _chunks(total: int, size: int, element_bytes: int) -> list[list[int]]:
    """Bytes of the segments of each rank's chunk; the last ones may be short or missing."""
    wanted = max(-(-total // SEGMENT_BYTES), 2 * size)
    count = -(-wanted // size) * size
    return _cut(total, _round_up(-(-total // count), element_bytes), count, size)


def _cut(total: int, segment: int, count: int, size: int) -> list[list[int]]:
    bounds = [min(i * segment, total) for i in range(count + 1)]
    lengths = [end - start for start, end in pairwise(bounds)]
    per_rank = count // size
    return [[n for n in lengths[r * per_rank : (r + 1) * per_rank] if n] for r in range(size)]


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _reduce_scatter(transfer: Transfer) -> Wire:
    """gloo has none: torch runs an all_reduce of the whole (of each part, of each tensor) and keeps a piece."""
    pieces: Sequence[int] = (transfer.total_bytes,)
    if transfer.form == "list":
        pieces = transfer.in_parts
    elif transfer.form.endswith("coalesced"):
        pieces = transfer.tensor_bytes
    return sum((_ring_all_reduce(transfer, piece) for piece in pieces), Wire())


def _all_gather(t: Transfer) -> Wire:
    """Ring: every block goes round in two halves; nothing at all when blocks are empty."""
    if t.total_bytes == 0:
        return Wire()
    steps = t.size - 1
    return Wire(steps * t.total_bytes, 2 * steps, 2 * steps)


def _all_to_all(t: Transfer) -> Wire:
    """One message to each of the others, empty ones too."""
    parts = t.in_parts or (t.total_bytes // t.size,) * t.size
    return Wire(sum(parts) - parts[t.rank], t.size - 1, t.size - 1)


def _broadcast(t: Transfer) -> Wire:
    """Binomial tree, counted from the root: place v sends to v + 2^k for every 2^k > v."""
    place = (t.rank - (t.root or 0)) % t.size
    steps = [1 << k for k in range(t.size.bit_length())]
    num_children = sum(1 for step in steps if step > place and place + step < t.size)
    return Wire(num_children * t.total_bytes, num_children, int(place != 0))


def _reduce(t: Transfer) -> Wire:
    """Ring reduce-scatter, then each chunk goes to the root in one message.

    The ring makes (segments − 2) steps, as if a chunk had two segments: with more, some segments travel once more
    than needed.
    """
    if t.total_bytes == 0:
        return Wire()
    wanted = max(-(-t.total_bytes // SEGMENT_BYTES), 2 * t.size)
    count = -(-wanted // t.size) * t.size
    segment = min(_round_up(-(-t.total_bytes // (2 * t.size)), t.element_bytes), SEGMENT_BYTES)
    chunks = _cut(t.total_bytes, segment, count, t.size)
    sent, received = (_reduce_ring(chunks, rank % t.size, count) for rank in (t.rank, t.rank + 1))
    if t.rank == t.root:
        gathered = sum(1 for rank, chunk in enumerate(chunks) if chunk and rank != t.rank)
        return Wire(sum(sent), len(sent), len(received) + gathered)
    mine = chunks[t.rank]
    return Wire(sum(sent) + sum(mine), len(sent) + bool(mine), len(received))


def _reduce_ring(chunks: Sequence[Sequence[int]], rank: int, count: int) -> list[int]:
    """Segments that rank sends to rank − 1, starting after its own chunk."""
    size, per_rank = len(chunks), count // len(chunks)
    slots = [list(chunk) + [0] * (per_rank - len(chunk)) for chunk in chunks]
    order = [n for step in range(1, size + 1) for n in slots[(rank + step) % size]]
    return [n for n in order[: count - 2] if n]


def _gather(t: Transfer) -> Wire:
    """Everybody sends to the root."""
    return Wire(num_received=t.size - 1) if t.rank == t.root else Wire(t.total_bytes, 1, 0)


def _scatter(t: Transfer) -> Wire:
    """The root sends to everybody."""
    if t.rank != t.root:
        return Wire(num_received=1)
    return Wire(sum(t.in_parts) - t.in_parts[t.rank], t.size - 1, 0)


def _barrier(t: Transfer) -> Wire:
    """Dissemination: one empty message each way in every round."""
    rounds = (t.size - 1).bit_length()
    return Wire(0, rounds, rounds)


def _monitored_barrier(t: Transfer) -> Wire:
    """The first rank hears from everybody, then answers."""
    peers = t.size - 1 if t.rank == 0 else 1
    return Wire(MONITORED_BARRIER_BYTES * peers, peers, peers)


_GLOO: dict[str, Callable[[Transfer], Wire]] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gather": _gather,
    "scatter": _scatter,
    "barrier": _barrier,
    "monitored_barrier": _monitored_barrier,
    "send": lambda t: Wire(t.total_bytes, 1, 0),
    "recv": lambda t: Wire(num_received=1),
}
