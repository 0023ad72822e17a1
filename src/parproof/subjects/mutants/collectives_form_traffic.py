"""Mutants of PAR-NCCL-COLLECTIVE whose forms give what they should, and send more than they say."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from parproof.subjects.protocol import Subject
from parproof.subjects.reference.collectives import Collectives
from parproof.subjects.reference.collectives_functional import FunctionalCollectives, _AllGather
from parproof.subjects.reference.collectives_messages import Message, ObjectCollectives, PointToPoint


def _mutant(name: str, mechanism: str) -> Subject:
    return Subject(name=name, mechanisms={mechanism: f"{__name__}:{name}"})


class FunctionalTwice(FunctionalCollectives):
    def all_gather(self, x: Tensor, dim: int, group: ProcessGroup) -> Any:
        super().all_gather(x.detach(), dim, group)
        return super().all_gather(x, dim, group)


class _SummedWhole(_AllGather):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        wire, dim, group = ctx.settings
        total = grad.contiguous().clone()
        wire.all_reduce(total, "sum", group)
        return total.tensor_split(group.size(), dim)[group.rank()], None, None, None


class GradientByAllReduce(FunctionalCollectives):
    def all_gather(self, x: Tensor, dim: int, group: ProcessGroup) -> Any:
        return _SummedWhole.apply(x, self._wire, dim, group)  # type: ignore[no-untyped-call]


class _Both:
    def __init__(self, first: Message, second: Message) -> None:
        self._handles = first, second

    def wait(self) -> None:
        for handle in self._handles:
            handle.wait()

    def is_completed(self) -> bool:
        return all(handle.is_completed() for handle in self._handles)


class MessageTwice(PointToPoint):
    def isend(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> Any:
        return _Both(super().isend(x, peer, tag, group), super().isend(x, peer, tag, group))

    def irecv(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> Any:
        first = super().irecv(torch.empty_like(x), peer, tag, group)
        return _Both(first, super().irecv(x, peer, tag, group))


class BarrierBeforeObjects(ObjectCollectives):
    def all_gather_object(self, value: Any, group: ProcessGroup) -> list[Any]:
        dist.barrier(group=group)
        return super().all_gather_object(value, group)


class PicklesPadded(ObjectCollectives):
    def send_objects(self, values: list[Any], peer: int, group: ProcessGroup) -> None:
        super().send_objects([values, bytes(100)], peer, group)

    def recv_objects(self, count: int, peer: int, group: ProcessGroup) -> list[Any]:
        found: list[Any] = super().recv_objects(count, peer, group)[0]
        return found


class BarrierTwice(Collectives):
    def barrier(self, group: ProcessGroup, async_op: bool = False) -> Any:
        super().barrier(group)
        return super().barrier(group, async_op)


class AsyncAsksFirst(Collectives):
    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup, async_op: bool = False) -> Any:
        if async_op:
            self.barrier(group, async_op=True)
        return super().all_reduce(x, op, group, async_op)


functional_twice = _mutant("FunctionalTwice", "functional_collectives")
gradient_by_all_reduce = _mutant("GradientByAllReduce", "functional_collectives")
message_twice = _mutant("MessageTwice", "point_to_point")
barrier_before_objects = _mutant("BarrierBeforeObjects", "object_collectives")
pickles_padded = _mutant("PicklesPadded", "object_collectives")
barrier_twice = _mutant("BarrierTwice", "collectives")
async_asks_first = _mutant("AsyncAsksFirst", "collectives")
