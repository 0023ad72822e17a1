"""What one rank sends in one collective: calls and bytes, by the algorithm that is said to carry it.

single_call      one call of the operation itself; its logical payload is what is handed in and handed back
scatters         a scatter from each rank in turn, of an all_to_all, or of a reduce_scatter whose parts are then summed
ring, ring_next, binomial_tree, direct, dissemination   point-to-point messages (closed forms below); two rings
                 of an all_reduce differ in the part a rank holds in the middle: its own, or the next rank's

Legend   p = ranks in the group; me, root = places in it; given[j], taken[j] = elements of the block that
         belongs to rank j (all_reduce, reduce, broadcast: a single block). Empty blocks are no message.
Source   derived in docs/costs.md; the ring's 2S(p − 1)/p and S(p − 1)/p are the bandwidth lower bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parproof.cost.traffic import Traffic
from parproof.errors import UsageError

ALGORITHMS = ("single_call", "scatters", "ring", "ring_next", "binomial_tree", "direct", "dissemination")
AGREEMENT_BYTES = {"neighbour_header": 64}


@dataclass(frozen=True)
class Place:
    """Where a rank stands in a call."""

    p: int
    me: int
    root: int = 0

    @property
    def right(self) -> int:
        """The next rank of the ring."""
        return (self.me + 1) % self.p

    @property
    def left(self) -> int:
        """The previous rank of the ring."""
        return (self.me - 1) % self.p


def collective_traffic(
    op: str,
    algorithm: str,
    place: Place,
    given: Sequence[int],
    taken: Sequence[int],
    *,
    element_bytes: int,
    agreement: str | None = None,
    phase: str = "",
) -> list[Traffic]:
    """All calls of one collective by one rank.

    Errors   UsageError for an algorithm that is not known here, or not for this operation.
    """
    if algorithm == "single_call":
        sent, received = _payload(op, place, given, taken)
        return [
            Traffic(
                op.removesuffix("_single"), 1, sent * element_bytes, received * element_bytes, place.p, phase
            )
        ]
    if algorithm == "scatters" and op in ("all_to_all", "reduce_scatter"):
        received = sum(taken) if op == "all_to_all" else place.p * taken[place.me]
        return [
            Traffic("scatter", place.p, sum(given) * element_bytes, received * element_bytes, place.p, phase)
        ]
    sends, receives = _messages(op, algorithm, place, given, taken)
    out = [n * element_bytes for n in sends if n]
    back = [n * element_bytes for n in receives if n]
    if agreement is not None and place.p > 1:
        out.append(AGREEMENT_BYTES[agreement])
        back.append(AGREEMENT_BYTES[agreement])
    lines = [
        Traffic("send", len(out), sum(out), 0, place.p, phase),
        Traffic("recv", len(back), 0, sum(back), place.p, phase),
    ]
    return [line for line in lines if line.calls]


def _payload(op: str, place: Place, given: Sequence[int], taken: Sequence[int]) -> tuple[int, int]:
    at_root = place.me == place.root
    if op in ("all_reduce", "reduce", "broadcast"):
        return given[0], given[0]
    if op in ("all_gather", "all_gather_single"):
        return given[place.me], sum(taken)
    if op in ("reduce_scatter", "reduce_scatter_single"):
        return sum(given), taken[place.me]
    if op in ("all_to_all", "all_to_all_single"):
        return sum(given), sum(taken)
    if op == "scatter":
        return (sum(given) if at_root else 0), taken[place.me]
    if op == "gather":
        return given[place.me], (sum(taken) if at_root else 0)
    return 0, 0


def _messages(
    op: str, algorithm: str, place: Place, given: Sequence[int], taken: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Elements of every message (sent, received)."""
    if algorithm in ("ring", "ring_next") and op == "all_reduce":
        parts = even_parts(given[0], place.p)
        if algorithm == "ring_next":
            parts = parts[1:] + parts[:1]  # seen from every rank, the part of its right neighbour
        first, second = _ring_reduce_scatter(place, parts), _ring_all_gather(place, parts)
        return first[0] + second[0], first[1] + second[1]
    if algorithm == "ring" and op in ("reduce_scatter", "reduce_scatter_single"):
        return _ring_reduce_scatter(place, given)
    if algorithm == "ring" and op in ("all_gather", "all_gather_single"):
        return _ring_all_gather(place, given)
    if algorithm == "binomial_tree" and op in ("broadcast", "reduce"):
        down = [given[0]] * num_children(place)
        up = [given[0]] if place.me != place.root else []
        return (down, up) if op == "broadcast" else (up, down)
    if algorithm == "direct" and op in ("all_to_all", "all_to_all_single", "scatter", "gather"):
        return _direct(op, place, given, taken)
    if algorithm == "dissemination" and op == "barrier":
        rounds = [1] * (place.p - 1).bit_length()
        return rounds, list(rounds)
    raise UsageError(
        f"algorithm {algorithm!r} for {op}",
        expected=f"one of {', '.join(ALGORITHMS)}, where it fits the operation",
        where="algorithms of the subject",
        next_step="or say that the subject lacks «*.traffic»",
    )


def even_parts(count: int, p: int) -> list[int]:
    """p parts that differ by at most one, the larger ones first."""
    return [count // p + (j < count % p) for j in range(p)]


def _ring_reduce_scatter(place: Place, parts: Sequence[int]) -> tuple[list[int], list[int]]:
    """Each part but the own one passes through; what arrives is all but the left neighbour's."""
    others = range(place.p)
    return [parts[j] for j in others if j != place.me], [parts[j] for j in others if j != place.left]


def _ring_all_gather(place: Place, parts: Sequence[int]) -> tuple[list[int], list[int]]:
    """All but the right neighbour's part is passed on; all but the own one arrives."""
    others = range(place.p)
    return [parts[j] for j in others if j != place.right], [parts[j] for j in others if j != place.me]


def _direct(op: str, place: Place, given: Sequence[int], taken: Sequence[int]) -> tuple[list[int], list[int]]:
    others = [j for j in range(place.p) if j != place.me]
    at_root = place.me == place.root
    if op == "scatter":
        return ([given[j] for j in others], []) if at_root else ([], [taken[place.me]])
    if op == "gather":
        return ([], [taken[j] for j in others]) if at_root else ([given[place.me]], [])
    return [given[j] for j in others], [taken[j] for j in others]


def num_children(place: Place) -> int:
    """Children of a rank in the binomial tree: the reaches 2**k above its own number that exist."""
    number = (place.me - place.root) % place.p
    first = number.bit_length()
    return sum(number + (1 << k) < place.p for k in range(first, (place.p - 1).bit_length()))
