"""Mutants of PAR-NCCL-COLLECTIVE: rooted differentiable forms, gradients in groups, handles that never end."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from parproof.subjects.protocol import Subject
from parproof.subjects.reference.collectives import Collectives
from parproof.subjects.reference.collectives_autograd import AutogradCollectives
from parproof.subjects.reference.collectives_functional import FunctionalCollectives
from parproof.subjects.reference.collectives_messages import PointToPoint
from parproof.subjects.reference.collectives_wire import Signature


def _mutant(name: str, mechanism: str) -> Subject:
    return Subject(name=name, mechanisms={mechanism: f"{__name__}:{name}"})


# -- rooted forms --------------------------------------------------------------------------------------------


class GatherRootIsGlobal(AutogradCollectives):
    def gather(self, x: Tensor, root: int, group: ProcessGroup) -> Any:
        """The root's place in the group is taken for a rank of the world, and looked up."""
        members = dist.get_process_group_ranks(group)
        return super().gather(x, members.index(root) if root in members else root, group)


class ScatterGradientOfOwnPart(AutogradCollectives):
    def scatter(self, x: Tensor, root: int, group: ProcessGroup) -> Any:
        y = super().scatter(x.detach(), root, group)
        mine = x.tensor_split(group.size())[group.rank()]
        return y + (mine - mine.detach()) if group.rank() == root else y + 0 * mine


class ReduceGradientOfOwnLoss(AutogradCollectives):
    def reduce(self, x: Tensor, op: str, root: int, group: ProcessGroup) -> Any:
        y = super().reduce(x.detach(), op, root, group)
        return y + (x - x.detach())


class ListInOwnOrder(AutogradCollectives):
    def all_to_all_list(self, xs: list[Tensor], group: ProcessGroup) -> Any:
        found = list(super().all_to_all_list(xs, group))
        return [found[group.rank()], *found[: group.rank()], *found[group.rank() + 1 :]]


# -- gradients in groups, and of one dtype -------------------------------------------------------------------


class ExtremesWithoutGradientInGroups(FunctionalCollectives):
    def reduce_scatter(self, x: Tensor, op: str, dim: int, group: ProcessGroup) -> Any:
        y = super().reduce_scatter(x, op, dim, group)
        is_lost = op in ("min", "max", "product") and group.size() < dist.get_world_size()
        return y.detach() + 0 * y if is_lost else y


class SinglePrecisionProductWithoutGradient(FunctionalCollectives):
    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup) -> Any:
        y = super().all_reduce(x, op, group)
        return y.detach() + 0 * y if op == "product" and x.dtype == torch.float32 else y


# -- handles and messages ------------------------------------------------------------------------------------


class _NeverComplete:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def wait(self) -> None:
        self._inner.wait()

    def is_completed(self) -> bool:
        return False


class HandleNeverComplete(Collectives):
    def _start(self, group: ProcessGroup, signature: Signature, body: Any, async_op: bool) -> Any:
        started = super()._start(group, signature, body, async_op)
        return _NeverComplete(started) if started else started


class MessageNeverComplete(PointToPoint):
    def irecv(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> Any:
        return _NeverComplete(super().irecv(x, peer, tag, group))


class ExchangeTwiceInGroups(PointToPoint):
    def exchange(
        self, x: Tensor, room: Tensor, to: int, source: int, tag: int, group: ProcessGroup
    ) -> Tensor:
        if group.size() < dist.get_world_size():
            super().exchange(x, torch.empty_like(room), to, source, tag, group)
        return super().exchange(x, room, to, source, tag, group)


gather_root_is_global = _mutant("GatherRootIsGlobal", "autograd_collectives")
scatter_gradient_of_own_part = _mutant("ScatterGradientOfOwnPart", "autograd_collectives")
reduce_gradient_of_own_loss = _mutant("ReduceGradientOfOwnLoss", "autograd_collectives")
list_in_own_order = _mutant("ListInOwnOrder", "autograd_collectives")
extremes_without_gradient_in_groups = _mutant("ExtremesWithoutGradientInGroups", "functional_collectives")
single_precision_product_without_gradient = _mutant(
    "SinglePrecisionProductWithoutGradient", "functional_collectives"
)
handle_never_complete = _mutant("HandleNeverComplete", "collectives")
message_never_complete = _mutant("MessageNeverComplete", "point_to_point")
exchange_twice_in_groups = _mutant("ExchangeTwiceInGroups", "point_to_point")
