"""The reference's messages and objects: staged, so that any strides do, and told apart by tag."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from parproof.subjects.collectives_protocol import Transfer
from parproof.subjects.reference.collectives import Collectives, put, room_for, staged
from parproof.subjects.reference.collectives_wire import Peers, as_bytes


class Message:
    """A started send or receive; a receive lands in x when `wait` returns."""

    def __init__(self, work: Any, flat: Tensor, target: Tensor | None, group: ProcessGroup) -> None:
        self._work = work
        self._group = group
        self._flat = flat
        self._target = target
        self._done = False

    def wait(self) -> None:
        """Block until it has left, or arrived."""
        if self._done:
            return
        Peers(self._group).wait_for([self._work])
        if self._target is not None:
            put(self._target, self._flat)
        self._done = True

    def is_completed(self) -> bool:
        """True after `wait` only."""
        return self._done


class PointToPoint:
    """See parproof.subjects.collectives_protocol. An empty message is one too: its receiver waits for its sender."""

    def send(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> None:
        """Wait for it to leave."""
        self.isend(x, peer, tag, group).wait()

    def recv(self, x: Tensor, peer: int | None, tag: int, group: ProcessGroup) -> int:
        """Wait for it to arrive; from anyone if peer is None."""
        if peer is not None:
            self.irecv(x, peer, tag, group).wait()
            return peer
        flat = room_for(x)
        source = dist.recv(as_bytes(flat), group=group, tag=tag)
        put(x, flat)
        return dist.get_group_rank(group, source)

    def isend(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> Message:
        """Send a copy, so that x may change at once."""
        flat = staged(x)
        work = dist.isend(as_bytes(flat), group=group, tag=tag, group_dst=peer)
        return Message(work, flat, None, group)

    def irecv(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> Message:
        """Receive into memory of its own, then into x."""
        flat = room_for(x)
        work = dist.irecv(as_bytes(flat), group=group, tag=tag, group_src=peer)
        return Message(work, flat, x, group)

    def batch(self, transfers: Sequence[Transfer], group: ProcessGroup) -> Sequence[Message]:
        """Start all of them."""
        return [
            self.isend(x, peer, 0, group) if word == "send" else self.irecv(x, peer, 0, group)
            for word, x, peer in transfers
        ]

    def exchange(
        self, x: Tensor, room: Tensor, to: int, source: int, tag: int, group: ProcessGroup
    ) -> Tensor:
        """Both at once, then wait for both."""
        for handle in (self.irecv(room, source, tag, group), self.isend(x, to, tag, group)):
            handle.wait()
        return room


def packed(value: Any) -> Tensor:
    """An object as bytes."""
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)


def unpacked(data: Tensor) -> Any:
    """Inverse of packed. Only for peers one trusts: unpickling runs what they say."""
    return pickle.loads(data.numpy().tobytes())


class ObjectCollectives:
    """See parproof.subjects.collectives_protocol. Lengths first, then exactly as many bytes."""

    algorithms: Mapping[str, str] = MappingProxyType({**Collectives.algorithms, "objects": "lengths_first"})

    def __init__(self) -> None:
        self._wire = Collectives()
        self._mail = PointToPoint()

    def all_gather_object(self, value: Any, group: ProcessGroup) -> list[Any]:
        """Ring."""
        data = packed(value)
        lengths = [torch.empty((), dtype=torch.int64) for _ in range(group.size())]
        self._wire.all_gather(lengths, torch.tensor(data.numel()), group)
        parts = [torch.empty(int(n), dtype=torch.uint8) for n in lengths]
        self._wire.all_gather(parts, data, group)
        return [unpacked(part) for part in parts]

    def gather_object(self, value: Any, root: int, group: ProcessGroup) -> list[Any] | None:
        """Direct."""
        data, at_root = packed(value), group.rank() == root
        lengths = [torch.empty((), dtype=torch.int64) for _ in range(group.size())] if at_root else None
        self._wire.gather(lengths, torch.tensor(data.numel()), root, group)
        parts = [torch.empty(int(n), dtype=torch.uint8) for n in lengths] if lengths else None
        self._wire.gather(parts, data, root, group)
        return [unpacked(part) for part in parts] if parts else None

    def broadcast_objects(
        self, values: list[Any] | None, count: int, root: int, group: ProcessGroup
    ) -> list[Any]:
        """Binomial tree."""
        data = packed(values)
        length = torch.tensor(data.numel())
        self._wire.broadcast(length, root, group)
        if group.rank() != root:
            data = torch.empty(int(length), dtype=torch.uint8)
        self._wire.broadcast(data, root, group)
        found: list[Any] = unpacked(data)
        return found

    def scatter_object(self, values: list[Any] | None, root: int, group: ProcessGroup) -> Any:
        """Direct."""
        parts = [packed(value) for value in values] if values is not None else None
        length = torch.empty((), dtype=torch.int64)
        lengths = [torch.tensor(part.numel()) for part in parts] if parts else None
        self._wire.scatter(length, lengths, root, group)
        mine = torch.empty(int(length), dtype=torch.uint8)
        self._wire.scatter(mine, parts, root, group)
        return unpacked(mine)

    def send_objects(self, values: list[Any], peer: int, group: ProcessGroup) -> None:
        """Length, then bytes."""
        data = packed(values)
        self._mail.send(torch.tensor(data.numel()), peer, 0, group)
        self._mail.send(data, peer, 0, group)

    def recv_objects(self, count: int, peer: int, group: ProcessGroup) -> list[Any]:
        """Length, then bytes."""
        length = torch.empty((), dtype=torch.int64)
        self._mail.recv(length, peer, 0, group)
        data = torch.empty(int(length), dtype=torch.uint8)
        self._mail.recv(data, peer, 0, group)
        found: list[Any] = unpacked(data)
        return found
