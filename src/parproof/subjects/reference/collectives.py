"""The reference collectives: any dtype, any strides, any group, on nothing but send and receive.

Every call stages its tensors contiguously, lets an algorithm move them, and copies the result into place; so a
strided view is as good as any tensor, and memory beside it is never touched. Before data moves, neighbours
compare what they are about to do (64 bytes each): a mismatch is an error that names it, not a wrong number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from parproof.errors import UsageError
from parproof.subjects.reference import collectives_algorithms as algorithms
from parproof.subjects.reference.collectives_wire import Peers, Rounds, Signature, Started, Wire, agreed


def staged(x: Tensor) -> Tensor:
    """A contiguous one-dimensional copy: what is sent must not change, what is reduced must not alias."""
    return x.detach().contiguous().clone().reshape(-1)


def room_for(x: Tensor) -> Tensor:
    """Memory for a result of x's size."""
    return torch.empty(x.numel(), dtype=x.dtype, device=x.device)


def put(x: Tensor, flat: Tensor) -> None:
    """Write a result into the caller's tensor, whatever its strides."""
    x.detach().copy_(flat.reshape(x.shape))


_ALGORITHMS = {
    "all_reduce": "ring",
    "all_gather": "ring",
    "all_gather_single": "ring",
    "reduce_scatter": "ring",
    "reduce_scatter_single": "ring",
    "all_to_all": "direct",
    "all_to_all_single": "direct",
    "broadcast": "binomial_tree",
    "reduce": "binomial_tree",
    "scatter": "direct",
    "gather": "direct",
    "barrier": "dissemination",
    "agreement": "neighbour_header",
}


class Collectives:
    """See parproof.subjects.collectives_protocol."""

    algorithms: Mapping[str, str] = MappingProxyType(_ALGORITHMS)

    def __init__(self) -> None:
        self._wire = Wire()

    def _start(
        self,
        group: ProcessGroup,
        signature: Signature,
        body: Callable[[Peers], Rounds],
        async_op: bool,
    ) -> Started | None:
        def rounds(peers: Peers) -> Rounds:
            yield from agreed(peers, signature)
            yield from body(peers)

        if signature.reduce_op:
            algorithms.require_defined(signature.reduce_op, signature.dtype)
        return self._wire.start(group, rounds, async_op)

    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup, async_op: bool = False) -> Started | None:
        """Ring."""

        def body(peers: Peers) -> Rounds:
            flat = staged(x)
            yield from algorithms.ring_all_reduce(peers, flat, op)
            put(x, flat)

        return self._start(group, Signature("all_reduce", op, -1, x.dtype, tuple(x.shape)), body, async_op)

    def all_gather(
        self, outs: list[Tensor], x: Tensor, group: ProcessGroup, async_op: bool = False
    ) -> Started | None:
        """Ring. The outputs may differ in size from rank to rank, as long as all ranks agree on it."""

        def body(peers: Peers) -> Rounds:
            require_count(outs, peers.size, "outs")
            parts = [room_for(out) for out in outs]
            parts[peers.me] = staged(x)
            yield from algorithms.ring_all_gather(peers, parts)
            for out, part in zip(outs, parts, strict=True):
                put(out, part)

        return self._start(group, Signature("all_gather", dtype=x.dtype), body, async_op)

    def all_gather_single(
        self, out: Tensor, x: Tensor, group: ProcessGroup, async_op: bool = False
    ) -> Started | None:
        """Ring."""

        def body(peers: Peers) -> Rounds:
            require_multiple(out, x, peers.size)
            parts = [room_for(x) for _ in range(peers.size)]
            parts[peers.me] = staged(x)
            yield from algorithms.ring_all_gather(peers, parts)
            put(out, torch.cat(parts))

        signature = Signature("all_gather_single", dtype=x.dtype, shape=tuple(x.shape))
        return self._start(group, signature, body, async_op)

    def reduce_scatter(
        self, out: Tensor, xs: list[Tensor], op: str, group: ProcessGroup, async_op: bool = False
    ) -> Started | None:
        """Ring."""

        def body(peers: Peers) -> Rounds:
            require_count(xs, peers.size, "xs")
            parts = [staged(x) for x in xs]
            yield from algorithms.ring_reduce_scatter(peers, parts, op)
            put(out, parts[peers.me])

        return self._start(group, Signature("reduce_scatter", op, -1, out.dtype), body, async_op)

    def reduce_scatter_single(
        self, out: Tensor, x: Tensor, op: str, group: ProcessGroup, async_op: bool = False
    ) -> Started | None:
        """Ring."""

        def body(peers: Peers) -> Rounds:
            require_multiple(x, out, peers.size)
            parts = list(staged(x).tensor_split(peers.size))
            yield from algorithms.ring_reduce_scatter(peers, parts, op)
            put(out, parts[peers.me])

        signature = Signature("reduce_scatter_single", op, -1, x.dtype, tuple(x.shape))
        return self._start(group, signature, body, async_op)

    def all_to_all(
        self, outs: list[Tensor], xs: list[Tensor], group: ProcessGroup, async_op: bool = False
    ) -> Started | None:
        """Direct."""

        def body(peers: Peers) -> Rounds:
            require_count(xs, peers.size, "xs")
            require_count(outs, peers.size, "outs")
            taken = [room_for(out) for out in outs]
            yield from algorithms.direct(peers, [staged(x) for x in xs], taken)
            for out, part in zip(outs, taken, strict=True):
                put(out, part)

        dtype = xs[0].dtype if xs else torch.uint8
        return self._start(group, Signature("all_to_all", dtype=dtype), body, async_op)

    def all_to_all_single(
        self,
        out: Tensor,
        x: Tensor,
        out_splits: list[int] | None,
        in_splits: list[int] | None,
        group: ProcessGroup,
        async_op: bool = False,
    ) -> Started | None:
        """Direct, on blocks of rows."""

        def body(peers: Peers) -> Rounds:
            given = [staged(rows) for rows in rows_of(x, in_splits, peers.size)]
            taken = [room_for(rows) for rows in rows_of(out, out_splits, peers.size)]
            yield from algorithms.direct(peers, given, taken)
            put(out, torch.cat(taken))

        return self._start(group, Signature("all_to_all_single", dtype=x.dtype), body, async_op)

    def broadcast(self, x: Tensor, root: int, group: ProcessGroup, async_op: bool = False) -> Started | None:
        """Binomial tree."""

        def body(peers: Peers) -> Rounds:
            flat = staged(x)
            yield from algorithms.tree_broadcast(peers, flat, root)
            put(x, flat)

        return self._start(group, Signature("broadcast", "", root, x.dtype, tuple(x.shape)), body, async_op)

    def reduce(
        self, x: Tensor, op: str, root: int, group: ProcessGroup, async_op: bool = False
    ) -> Started | None:
        """Binomial tree."""

        def body(peers: Peers) -> Rounds:
            flat = staged(x)
            yield from algorithms.tree_reduce(peers, flat, op, root)
            if peers.me == root:
                put(x, flat)

        return self._start(group, Signature("reduce", op, root, x.dtype, tuple(x.shape)), body, async_op)

    def scatter(
        self, out: Tensor, xs: list[Tensor] | None, root: int, group: ProcessGroup, async_op: bool = False
    ) -> Started | None:
        """Direct."""

        def body(peers: Peers) -> Rounds:
            nothing: list[Tensor | None] = [None] * peers.size
            given, taken, target = nothing, list(nothing), room_for(out)
            if peers.me == root:
                require_count(xs or [], peers.size, "xs of the root")
                given = [staged(x) for x in xs or []]
            taken[root] = target
            yield from algorithms.direct(peers, given, taken)
            put(out, target)

        return self._start(group, Signature("scatter", "", root, out.dtype), body, async_op)

    def gather(
        self, outs: list[Tensor] | None, x: Tensor, root: int, group: ProcessGroup, async_op: bool = False
    ) -> Started | None:
        """Direct."""

        def body(peers: Peers) -> Rounds:
            given: list[Tensor | None] = [None] * peers.size
            taken = list(given)
            given[root] = staged(x)
            if peers.me == root:
                require_count(outs or [], peers.size, "outs of the root")
                taken = [room_for(out) for out in outs or []]
            yield from algorithms.direct(peers, given, taken)
            for out, part in zip(outs or [], taken if peers.me == root else [], strict=True):
                put(out, part)  # type: ignore[arg-type]

        return self._start(group, Signature("gather", "", root, x.dtype), body, async_op)

    def barrier(self, group: ProcessGroup, async_op: bool = False) -> Started | None:
        """Dissemination."""
        return self._start(group, Signature("barrier"), algorithms.dissemination, async_op)


def rows_of(x: Tensor, splits: list[int] | None, p: int) -> Sequence[Tensor]:
    """The blocks of rows for each rank."""
    if splits is None:
        if not x.dim() or x.shape[0] % p:
            raise UsageError(f"shape {list(x.shape)}", expected=f"rows that {p} ranks can share equally")
        return x.tensor_split(p)
    if len(splits) != p or sum(splits) != x.shape[0]:
        raise UsageError(f"splits {splits} of {x.shape[0]} rows", expected=f"{p} counts that add up to it")
    found: Sequence[Tensor] = x.split(splits)
    return found


def require_count(tensors: Sequence[Tensor], p: int, what: str) -> None:
    """One tensor per rank."""
    if len(tensors) != p:
        raise UsageError(f"{len(tensors)} tensors in {what}", expected=f"one for each of the {p} ranks")


def require_multiple(whole: Tensor, part: Tensor, p: int) -> None:
    """p parts make the whole."""
    if whole.numel() != p * part.numel() or whole.dtype != part.dtype:
        raise UsageError(
            f"{whole.dtype} {list(whole.shape)} for {p} parts of {part.dtype} {list(part.shape)}",
            expected="p times the elements, and the same dtype",
        )
