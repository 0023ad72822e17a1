"""Coalesced collectives on the reference's own: one after the other. Nothing is gained, nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch import Tensor
from torch.distributed import ProcessGroup

from parproof.subjects.collectives_protocol import BatchedCall
from parproof.subjects.reference.collectives import Collectives


class AllOf:
    """The handles of several started operations as one."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self._handles = handles

    def wait(self) -> None:
        """Wait for each."""
        for handle in self._handles:
            handle.wait()

    def is_completed(self) -> bool:
        """True when each is."""
        return all(handle.is_completed() for handle in self._handles)


class CoalescedCollectives:
    """See parproof.subjects.collectives_protocol."""

    algorithms: Mapping[str, str] = MappingProxyType({**Collectives.algorithms, "coalesced": "one_by_one"})

    def __init__(self) -> None:
        self._wire = Collectives()

    def all_reduce_coalesced(
        self, xs: list[Tensor], op: str, group: ProcessGroup, async_op: bool = False
    ) -> AllOf | None:
        """A ring for each."""
        return self.together([("all_reduce", (x, op)) for x in xs], group, async_op)

    def all_gather_coalesced(
        self, outs: list[list[Tensor]], xs: list[Tensor], group: ProcessGroup, async_op: bool = False
    ) -> AllOf | None:
        """A ring for each."""
        calls = [("all_gather", ([of_rank[k] for of_rank in outs], x)) for k, x in enumerate(xs)]
        return self.together(calls, group, async_op)

    def together(
        self, calls: Sequence[BatchedCall], group: ProcessGroup, async_op: bool = False
    ) -> AllOf | None:
        """Each call is started, in order, and run to its end if nobody asked for a handle."""
        handles = [getattr(self._wire, name)(*arguments, group, async_op) for name, arguments in calls]
        return AllOf(handles) if async_op and None not in handles else None
