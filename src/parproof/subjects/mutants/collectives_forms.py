"""Mutants of PAR-NCCL-COLLECTIVE: functional forms, gradients, messages and objects, with one lie each."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from parproof.subjects.protocol import Subject
from parproof.subjects.reference.collectives_functional import FunctionalCollectives
from parproof.subjects.reference.collectives_messages import Message, ObjectCollectives, PointToPoint


def _mutant(name: str, mechanism: str) -> Subject:
    return Subject(name=name, mechanisms={mechanism: f"{__name__}:{name}"})


# -- functional forms and gradients --------------------------------------------------------------------------


class StridedGradientLost(FunctionalCollectives):
    def all_gather(self, x: Tensor, dim: int, group: ProcessGroup) -> Any:
        return super().all_gather(x if x.is_contiguous() else x.detach() + 0 * x, dim, group)


class GradientOfOwnSlice(FunctionalCollectives):
    def all_gather(self, x: Tensor, dim: int, group: ProcessGroup) -> Any:
        parts = list(super().all_gather(x.detach(), dim, group).tensor_split(group.size(), dim))
        parts[group.rank()] = x
        return torch.cat(parts, dim)


class GradientTimesWorld(FunctionalCollectives):
    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup) -> Any:
        y = super().all_reduce(x, op, group)
        return y + (group.size() - 1) * (y - y.detach())


class GradientNotReduced(FunctionalCollectives):
    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup) -> Any:
        y = super().all_reduce(x.detach(), op, group)
        return y + (x - x.detach())


class InputIsOverwritten(FunctionalCollectives):
    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup) -> Any:
        y = super().all_reduce(x, op, group)
        x.detach().copy_(y.detach())
        return y


class PermuteInverted(FunctionalCollectives):
    def permute(self, x: Tensor, targets: list[int], group: ProcessGroup) -> Any:
        return super().permute(x, [targets.index(j) for j in range(group.size())], group)


class WrongDim(FunctionalCollectives):
    def reduce_scatter(self, x: Tensor, op: str, dim: int, group: ProcessGroup) -> Any:
        if dim == 0:
            return super().reduce_scatter(x, op, 0, group)
        rows = x.reshape(x.shape[1], x.shape[0])  # a transposition forgotten: rows are cut, not columns
        return super().reduce_scatter(rows, op, 0, group).reshape(x.shape[0], -1)


class CoalescedSwapped(FunctionalCollectives):
    def all_gather_coalesced(self, xs: list[Tensor], group: ProcessGroup) -> list[Any]:
        first, *others = super().all_gather_coalesced(xs, group)
        return [first.flip(0), *others]


# -- messages ------------------------------------------------------------------------------------------------


class TagsIgnored(PointToPoint):
    def isend(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> Message:
        return super().isend(x, peer, 0, group)

    def irecv(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> Message:
        return super().irecv(x, peer, 0, group)


class SenderIsGlobal(PointToPoint):
    def recv(self, x: Tensor, peer: int | None, tag: int, group: ProcessGroup) -> int:
        return dist.get_global_rank(group, super().recv(x, peer, tag, group))


class ExchangeTakesGlobalRanks(PointToPoint):
    def exchange(
        self, x: Tensor, room: Tensor, to: int, source: int, tag: int, group: ProcessGroup
    ) -> Tensor:
        """What is meant as a place in the group is looked up as a rank of the world."""
        ranks = dist.get_process_group_ranks(group)
        shift = [ranks.index(k) if k in ranks else k for k in range(group.size())]
        return super().exchange(x, room, shift[to], shift[source], tag, group)


class SendsWhatIsBehind(PointToPoint):
    def isend(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> Message:
        return super().isend(x.as_strided(x.shape, _dense(x.shape)), peer, tag, group)


class ReceivesIntoWhatIsBehind(PointToPoint):
    def irecv(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> Message:
        return super().irecv(x.as_strided(x.shape, _dense(x.shape)), peer, tag, group)


def _dense(shape: torch.Size) -> list[int]:
    return [shape[k + 1 :].numel() for k in range(len(shape))]


# -- objects -------------------------------------------------------------------------------------------------


class OwnObjectFirst(ObjectCollectives):
    def all_gather_object(self, value: Any, group: ProcessGroup) -> list[Any]:
        found = super().all_gather_object(value, group)
        return [found.pop(group.rank()), *found]


class ObjectRootIsGlobal(ObjectCollectives):
    def broadcast_objects(
        self, values: list[Any] | None, count: int, root: int, group: ProcessGroup
    ) -> list[Any]:
        members = dist.get_process_group_ranks(group)
        return super().broadcast_objects(
            values, count, members.index(root) if root in members else root, group
        )


class ScatterShifted(ObjectCollectives):
    def scatter_object(self, values: list[Any] | None, root: int, group: ProcessGroup) -> Any:
        return super().scatter_object(values[1:] + values[:1] if values else None, root, group)


strided_gradient_lost = _mutant("StridedGradientLost", "functional_collectives")
gradient_of_own_slice = _mutant("GradientOfOwnSlice", "functional_collectives")
gradient_times_world = _mutant("GradientTimesWorld", "functional_collectives")
gradient_not_reduced = _mutant("GradientNotReduced", "functional_collectives")
input_is_overwritten = _mutant("InputIsOverwritten", "functional_collectives")
permute_inverted = _mutant("PermuteInverted", "functional_collectives")
wrong_dim = _mutant("WrongDim", "functional_collectives")
coalesced_swapped = _mutant("CoalescedSwapped", "functional_collectives")
tags_ignored = _mutant("TagsIgnored", "point_to_point")
sender_is_global = _mutant("SenderIsGlobal", "point_to_point")
exchange_takes_global_ranks = _mutant("ExchangeTakesGlobalRanks", "point_to_point")
sends_what_is_behind = _mutant("SendsWhatIsBehind", "point_to_point")
receives_into_what_is_behind = _mutant("ReceivesIntoWhatIsBehind", "point_to_point")
own_object_first = _mutant("OwnObjectFirst", "object_collectives")
object_root_is_global = _mutant("ObjectRootIsGlobal", "object_collectives")
scatter_shifted = _mutant("ScatterShifted", "object_collectives")
