"""torch.distributed's coalesced collectives, and its coalescing manager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.distributed_c10d import _coalescing_manager

from parproof.subjects.collectives_protocol import BatchedCall
from parproof.subjects.torch_native.collectives import REDUCE_OPS, Collectives


class Pending:
    """A future, which is what these two give back, under the names of a work."""

    def __init__(self, future: Any) -> None:
        self._future = future

    def wait(self) -> None:
        """Block until it is done."""
        self._future.wait()

    def is_completed(self) -> bool:
        """Whether it is."""
        return bool(self._future.done())


class CoalescedCollectives:
    """See parproof.subjects.collectives_protocol."""

    algorithms: Mapping[str, str] = MappingProxyType({**Collectives.algorithms, "coalesced": "one_call"})

    def __init__(self) -> None:
        self._single = Collectives()

    def all_reduce_coalesced(
        self, xs: list[Tensor], op: str, group: ProcessGroup, async_op: bool = False
    ) -> Any:
        """dist.all_reduce_coalesced."""
        future = dist.all_reduce_coalesced(xs, REDUCE_OPS[op], group=group, async_op=async_op)
        return future if future is None else Pending(future)

    def all_gather_coalesced(
        self, outs: list[list[Tensor]], xs: list[Tensor], group: ProcessGroup, async_op: bool = False
    ) -> Any:
        """dist.all_gather_coalesced."""
        future = dist.all_gather_coalesced(outs, xs, group=group, async_op=async_op)
        return future if future is None else Pending(future)

    def together(self, calls: Sequence[BatchedCall], group: ProcessGroup, async_op: bool = False) -> Any:
        """dist's _coalescing_manager: without a device, since gloo has no startCoalescing."""
        with _coalescing_manager(group, async_ops=async_op) as manager:
            for name, arguments in calls:
                getattr(self._single, name)(*arguments, group)
        return manager.works[0] if async_op and manager.works else None
