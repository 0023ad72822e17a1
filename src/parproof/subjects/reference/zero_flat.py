"""A flat buffer: parameters of one unit and one dtype, one behind the other, cut into equal shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Segment:
    """The part of one parameter that lies in a range of the buffer.

    lo, hi   where it lies in the buffer
    start    where it begins in the flattened parameter
    """

    name: str
    lo: int
    hi: int
    start: int


class FlatBuffer:
    """Parameters as views of one buffer, cut into `num_shards` equal shards; the last ones may be short.

    With `padded` the buffer is filled up with zeros, so that all shards are of one size.

    The buffer's memory can be given back (`release`) and taken again (`allocate`) while the parameters keep
    their identity, so that autograd and the modules do not notice.
    """

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]], num_shards: int, padded: bool) -> None:
        self.parameters = dict(named)
        first = next(iter(self.parameters.values()))
        self.dtype, self.trainable = first.dtype, first.requires_grad
        self.offsets: dict[str, int] = {}
        self.numel = 0
        for name, parameter in self.parameters.items():
            self.offsets[name] = self.numel
            self.numel += parameter.numel()
        self.shard_numel = -(-self.numel // num_shards)
        size = self.shard_numel * num_shards if padded else self.numel
        self.full = torch.zeros(size, dtype=self.dtype, device=first.device)
        self._num_bytes = self.full.untyped_storage().nbytes()
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                view = self._view(self.full, name)
                view.copy_(parameter)
                parameter.data = view
        self.gradient: Tensor | None = None
        self.used: set[str] = set()

    def _view(self, flat: Tensor, name: str) -> Tensor:
        parameter, offset = self.parameters[name], self.offsets[name]
        return flat[offset : offset + parameter.numel()].view(parameter.shape)

    def shard_range(self, index: int) -> tuple[int, int]:
        """Where shard `index` begins and ends."""
        size = self.full.numel()
        return min(index * self.shard_numel, size), min((index + 1) * self.shard_numel, size)

    def segments(self, lo: int, hi: int) -> Iterator[Segment]:
        """The parameters, or parts of them, in a range; padding belongs to nobody."""
        for name, offset in self.offsets.items():
            begin, end = max(lo, offset), min(hi, offset + self.parameters[name].numel())
            if begin < end:
                yield Segment(name, begin, end, begin - offset)

    def take_gradients(self) -> Tensor:
        """This rank's accumulated gradients as a new flat tensor; the parameters' own are given up."""
        flat = torch.zeros_like(self.full)
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                self._view(flat, name).copy_(parameter.grad)
                self.used.add(name)
                parameter.grad = None
        return flat

    def release(self) -> None:
        """Give the buffer's memory back."""
        self.full.untyped_storage().resize_(0)

    def allocate(self) -> Tensor:
        """The buffer with memory, to be filled; views of parameters see what is written."""
        self.full.untyped_storage().resize_(self._num_bytes)
        return self.full

    @property
    def resident(self) -> bool:
        """Whether the buffer has memory."""
        return self.full.untyped_storage().nbytes() == self._num_bytes
