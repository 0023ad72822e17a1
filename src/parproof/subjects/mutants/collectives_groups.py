"""Mutants of PAR-NCCL-COLLECTIVE: coalesced calls, and what goes wrong only in some group, shape or size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from parproof.subjects.collectives_protocol import BatchedCall
from parproof.subjects.mutants.collectives_conduct import ClaimsCompletion
from parproof.subjects.protocol import Subject
from parproof.subjects.reference.collectives import Collectives
from parproof.subjects.reference.collectives_autograd import AutogradCollectives
from parproof.subjects.reference.collectives_coalesced import CoalescedCollectives
from parproof.subjects.reference.collectives_functional import FunctionalCollectives, _AllReduce
from parproof.subjects.reference.collectives_messages import PointToPoint
from parproof.subjects.reference.collectives_wire import Signature


def _mutant(name: str, mechanism: str) -> Subject:
    return Subject(name=name, mechanisms={mechanism: f"{__name__}:{name}"})


# -- coalesced -----------------------------------------------------------------------------------------------


class ReductionOfTheFirst(CoalescedCollectives):
    def together(self, calls: Sequence[BatchedCall], group: ProcessGroup, async_op: bool = False) -> Any:
        name, first = calls[0]
        if name == "all_reduce":
            calls = [(name, (arguments[0], first[1])) for _, arguments in calls]
        return super().together(calls, group, async_op)


class LastTensorForgotten(CoalescedCollectives):
    def all_gather_coalesced(
        self, outs: list[list[Tensor]], xs: list[Tensor], group: ProcessGroup, async_op: bool = False
    ) -> Any:
        return super().all_gather_coalesced([of_rank[:-1] for of_rank in outs], xs[:-1], group, async_op)


class CoalescedCompleteAtOnce(CoalescedCollectives):
    def together(self, calls: Sequence[BatchedCall], group: ProcessGroup, async_op: bool = False) -> Any:
        handle = super().together(calls, group, async_op)
        return handle if handle is None else ClaimsCompletion(handle)


class CoalescedBehindABarrier(CoalescedCollectives):
    def all_reduce_coalesced(
        self, xs: list[Tensor], op: str, group: ProcessGroup, async_op: bool = False
    ) -> Any:
        self._wire.barrier(group, async_op)
        return super().all_reduce_coalesced(xs, op, group, async_op)


# -- groups, shapes, sizes -----------------------------------------------------------------------------------


class _Nothing:
    def wait(self) -> None:
        return None

    def is_completed(self) -> bool:
        return False


class WaitsInTheWorldOnly(Collectives):
    def _start(self, group: ProcessGroup, signature: Signature, body: Any, async_op: bool) -> Any:
        started = super()._start(group, signature, body, async_op)
        return _Nothing() if started and group.size() < dist.get_world_size() else started


class BarrierOfTheWorld(Collectives):
    def barrier(self, group: ProcessGroup, async_op: bool = False) -> Any:
        world = dist.group.WORLD
        assert world is not None
        return super().barrier(world, async_op)


class LargeTailLeft(Collectives):
    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup, async_op: bool = False) -> Any:
        return super().all_reduce(x if x.numel() < 2**24 else x[: 2**24], op, group, async_op)


class MinimumIsMaximum(FunctionalCollectives):
    def reduce_scatter(self, x: Tensor, op: str, dim: int, group: ProcessGroup) -> Any:
        return super().reduce_scatter(x, "max" if op == "min" else op, dim, group)


class MeanOfTheWorld(FunctionalCollectives):
    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup) -> Any:
        y = super().all_reduce(x, op, group)
        scale = group.size() / dist.get_world_size() if op == "avg" else 1.0
        return y if scale == 1.0 or not x.requires_grad else y.detach() + scale * (y - y.detach())


class ScalarBecomesAVector(FunctionalCollectives):
    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup) -> Any:
        return super().all_reduce(x, op, group).reshape(x.shape or (1,))


class _ReducedAsTheValues(_AllReduce):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        wire, op, group = ctx.settings
        total = grad.contiguous().clone()
        wire.all_reduce(total, op, group)
        return total, None, None, None


class GradientReducedAsValues(AutogradCollectives):
    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup) -> Any:
        return _ReducedAsTheValues.apply(x, self._wire, op, group)  # type: ignore[no-untyped-call]


class GradientOfAnotherRoot(AutogradCollectives):
    def broadcast(self, x: Tensor, root: int, group: ProcessGroup) -> Any:
        y = super().broadcast(x, root, group)
        return y if group.rank() == dist.get_rank() else y.detach() + 0 * y


class EmptyIsNoMessage(PointToPoint):
    def isend(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> Any:
        return super().isend(x, peer, tag, group) if x.numel() else _Nothing()

    def irecv(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> Any:
        return super().irecv(x, peer, tag, group) if x.numel() else _Nothing()


reduction_of_the_first = _mutant("ReductionOfTheFirst", "coalesced_collectives")
last_tensor_forgotten = _mutant("LastTensorForgotten", "coalesced_collectives")
coalesced_complete_at_once = _mutant("CoalescedCompleteAtOnce", "coalesced_collectives")
coalesced_behind_a_barrier = _mutant("CoalescedBehindABarrier", "coalesced_collectives")
waits_in_the_world_only = _mutant("WaitsInTheWorldOnly", "collectives")
barrier_of_the_world = _mutant("BarrierOfTheWorld", "collectives")
large_tail_left = _mutant("LargeTailLeft", "collectives")
minimum_is_maximum = _mutant("MinimumIsMaximum", "functional_collectives")
mean_of_the_world = _mutant("MeanOfTheWorld", "functional_collectives")
scalar_becomes_a_vector = _mutant("ScalarBecomesAVector", "functional_collectives")
empty_is_no_message = _mutant("EmptyIsNoMessage", "point_to_point")
gradient_reduced_as_values = _mutant("GradientReducedAsValues", "autograd_collectives")
gradient_of_another_root = _mutant("GradientOfAnotherRoot", "autograd_collectives")
