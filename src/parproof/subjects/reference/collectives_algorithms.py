"""Ring, tree and direct algorithms over contiguous one-dimensional tensors; rounds as in collectives_wire.

Each docstring gives what a rank sends for S bytes over p ranks (derived in docs/costs.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from parproof.errors import UsageError
from parproof.subjects.reference.collectives_wire import Peers, Rounds


def combine(a: Tensor, b: Tensor, op: str) -> Tensor:
    """Elementwise reduction of two tensors; «avg» adds, `averaged` divides at the end."""
    if a.dtype == torch.bool:
        return _combine_bool(a, b, op)
    combined: Tensor = _COMBINE[op](a, b)
    return combined


_COMBINE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "avg": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}


def _combine_bool(a: Tensor, b: Tensor, op: str) -> Tensor:
    if op in ("sum", "max", "bor"):
        return a | b
    return a ^ b if op == "bxor" else a & b


def require_defined(op: str, dtype: torch.dtype) -> None:
    """Refuse what has no meaning, before anything is sent."""
    floating = dtype.is_floating_point or dtype.is_complex
    if (op == "avg" and dtype == torch.bool) or (op in ("band", "bor", "bxor") and floating):
        raise UsageError(f"{op} of {dtype}", expected="a reduction that is defined for the dtype")


def averaged(total: Tensor, op: str, p: int) -> Tensor:
    """Divide a sum of p values if a mean was asked for; integers truncate."""
    if op != "avg":
        return total
    floating = total.dtype.is_floating_point or total.dtype.is_complex
    return total / p if floating else torch.div(total, p, rounding_mode="trunc")


def ring_reduce_scatter(peers: Peers, parts: list[Tensor], op: str) -> Rounds:
    """parts[me] becomes the reduction of all ranks' parts[me]; the other parts are used up.

    Sends every part but its own once: S(p − 1)/p for equal parts.
    """
    p, me = peers.size, peers.me
    for step in range(p - 1):
        given, taken = (me - step - 1) % p, (me - step - 2) % p
        arrived = torch.empty_like(parts[taken])
        yield peers.exchange([(peers.right, parts[given])], [(peers.left, arrived)])
        parts[taken] = combine(arrived, parts[taken], op)
    parts[me] = averaged(parts[me], op, p)


def ring_all_gather(peers: Peers, parts: list[Tensor]) -> Rounds:
    """parts[j] becomes rank j's parts[j]. Sends every part but its right neighbour's once."""
    p, me = peers.size, peers.me
    for step in range(p - 1):
        given, taken = (me - step) % p, (me - step - 1) % p
        yield peers.exchange([(peers.right, parts[given])], [(peers.left, parts[taken])])


def ring_all_reduce(peers: Peers, flat: Tensor, op: str) -> Rounds:
    """flat becomes the reduction: reduce-scatter, then all-gather. Sends 2S(p − 1)/p."""
    parts = [part.clone() for part in flat.tensor_split(peers.size)]
    yield from ring_reduce_scatter(peers, parts, op)
    yield from ring_all_gather(peers, parts)
    torch.cat(parts, out=flat)


def tree_broadcast(peers: Peers, flat: Tensor, root: int) -> Rounds:
    """flat becomes the root's, in ceil(log2 p) rounds; a rank sends S to each of its children."""
    p = peers.size
    place = (peers.me - root) % p
    for k in range((p - 1).bit_length()):
        reach = 1 << k
        if place < reach and place + reach < p:
            yield peers.exchange([((place + reach + root) % p, flat)], [])
        elif reach <= place < 2 * reach:
            yield peers.exchange([], [((place - reach + root) % p, flat)])


def tree_reduce(peers: Peers, flat: Tensor, op: str, root: int) -> Rounds:
    """At the root, flat becomes the reduction. Everybody else sends S once."""
    p = peers.size
    place = (peers.me - root) % p
    total = flat
    for k in reversed(range((p - 1).bit_length())):
        reach = 1 << k
        if reach <= place < 2 * reach:
            yield peers.exchange([((place - reach + root) % p, total)], [])
        elif place < reach and place + reach < p:
            arrived = torch.empty_like(flat)
            yield peers.exchange([], [((place + reach + root) % p, arrived)])
            total = combine(total, arrived, op)
    if place == 0:
        flat.copy_(averaged(total, op, p))


def direct(peers: Peers, given: Sequence[Tensor | None], taken: Sequence[Tensor | None]) -> Rounds:
    """given[j] goes to rank j, taken[j] comes from rank j, all in one round; its own part does not travel."""
    own, target = given[peers.me], taken[peers.me]
    if own is not None and target is not None:
        target.copy_(own)
    others = [j for j in range(peers.size) if j != peers.me]
    yield peers.exchange(
        [(j, x) for j in others if (x := given[j]) is not None],
        [(j, x) for j in others if (x := taken[j]) is not None],
    )


def dissemination(peers: Peers) -> Rounds:
    """A barrier: after round k a rank has heard of 2**(k + 1) ranks. Sends ceil(log2 p) bytes."""
    note, arrived = torch.zeros(1, dtype=torch.uint8), torch.empty(1, dtype=torch.uint8)
    for k in range((peers.size - 1).bit_length()):
        reach = 1 << k
        yield peers.exchange(
            [((peers.me + reach) % peers.size, note)], [((peers.me - reach) % peers.size, arrived)]
        )
