"""Mutants of PAR-CONTEXT-RING around groups and around what is left from one call to the next (see the catalogue)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import Tensor

from parproof.subjects.context_protocol import ContextPlan
from parproof.subjects.mutants.context_lies import exchange, layer, subjects
from parproof.subjects.reference.context import ContextAttention
from parproof.subjects.reference.context_sharing import SharingAttention
from parproof.subjects.reference.context_wire import ContextWire


def _other_group(group: dist.ProcessGroup) -> dist.ProcessGroup:
    """Of four ranks in groups 0, 2 and 1, 3: groups 0, 3 and 1, 2, in which each rank has the place it had."""
    if group.size() == dist.get_world_size():
        return group
    made: dist.ProcessGroup = dist.new_subgroups_by_enumeration([[0, 3], [1, 2]])[0]
    return made


class OtherGroup(ContextWire):
    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__(_other_group(group))


class RightPartnersOfTheWorld(ContextWire):
    def pass_on(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        to, source = (dist.get_global_rank(self.group, (self.me + i) % self.p) for i in (1, -1))
        received = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in tensors]
        operations = []
        for mine, theirs in zip(tensors, received, strict=True):
            operations.append(dist.P2POp(dist.isend, mine.contiguous(), to))
            operations.append(dist.P2POp(dist.irecv, theirs, source))
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        return received


class SumsOverAnotherGroup(ContextWire):
    def sum_over_ranks(self, x: Tensor) -> Tensor:
        self.group = _other_group(self.group)
        return super().sum_over_ranks(x)


class NormsTwice(SharingAttention):
    calls = 0

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.calls += 1
        return super().__call__(q, k, v)

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return super().norm(x, weight) * min(self.calls, 2)


class GradientOfTheLastCall(SharingAttention):
    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.shared = {name: t.detach().requires_grad_() for name, t in self.shared.items()}
        return super().__call__(q, k, v)


class ForgetsDocuments(ContextAttention):
    calls = 0

    def attend(self, q: Tensor, k: Tensor, v: Tensor, plan: ContextPlan, group: dist.ProcessGroup) -> Tensor:
        self.calls += 1
        if self.calls > 1:
            plan = dataclasses.replace(plan, document_lengths=())
        return super().attend(q, k, v, plan, group)


class KeepsDocuments(ContextAttention):
    first: tuple[int, ...] | None = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, plan: ContextPlan, group: dist.ProcessGroup) -> Tensor:
        self.first = plan.document_lengths if self.first is None else self.first
        return super().attend(q, k, v, dataclasses.replace(plan, document_lengths=self.first), group)


class KeepsValues(ContextAttention):
    first: Tensor | None = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, plan: ContextPlan, group: dist.ProcessGroup) -> Tensor:
        self.first = v.detach() if self.first is None else self.first
        return super().attend(q, k, self.first + (v - v.detach()), plan, group)


LIES = SimpleNamespace(
    exchanges_with_the_other_group=exchange(OtherGroup),
    sends_in_the_group_of_the_world=exchange(RightPartnersOfTheWorld),
    shared_gradient_over_another_group=exchange(SumsOverAnotherGroup),
    norms_double_from_the_second_call=layer(NormsTwice),
    shared_gradient_of_the_last_call=layer(GradientOfTheLastCall),
    forgets_documents_at_the_second_call=ForgetsDocuments,
    keeps_the_documents_of_the_first_call=KeepsDocuments,
    keeps_the_values_of_the_first_call=KeepsValues,
)

# One subject a lie, by the names of the catalogue.
globals().update(subjects(__name__, LIES))
