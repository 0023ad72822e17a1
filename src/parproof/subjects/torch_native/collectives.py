"""torch.distributed's own collectives, called as their documentation says. Roots are given as group ranks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from parproof import torch_names

REDUCE_OPS = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.AVG,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "product": dist.ReduceOp.PRODUCT,
    "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR,
    "bxor": dist.ReduceOp.BXOR,
}
_OPS = (
    "all_reduce all_gather all_gather_single reduce_scatter reduce_scatter_single all_to_all all_to_all_single"
    " broadcast reduce scatter gather barrier"
)


class Collectives:
    """See parproof.subjects.collectives_protocol."""

    algorithms: Mapping[str, str] = MappingProxyType(dict.fromkeys(_OPS.split(), "single_call"))

    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup, async_op: bool = False) -> Any:
        """dist.all_reduce."""
        return dist.all_reduce(x, REDUCE_OPS[op], group=group, async_op=async_op)

    def all_gather(self, outs: list[Tensor], x: Tensor, group: ProcessGroup, async_op: bool = False) -> Any:
        """dist.all_gather."""
        return dist.all_gather(outs, x, group=group, async_op=async_op)

    def all_gather_single(self, out: Tensor, x: Tensor, group: ProcessGroup, async_op: bool = False) -> Any:
        """dist.all_gather_single, before torch 2.13 all_gather_into_tensor."""
        return torch_names.all_gather_single(out, x, group=group, async_op=async_op)

    def reduce_scatter(
        self, out: Tensor, xs: list[Tensor], op: str, group: ProcessGroup, async_op: bool = False
    ) -> Any:
        """dist.reduce_scatter."""
        return dist.reduce_scatter(out, xs, REDUCE_OPS[op], group=group, async_op=async_op)

    def reduce_scatter_single(
        self, out: Tensor, x: Tensor, op: str, group: ProcessGroup, async_op: bool = False
    ) -> Any:
        """dist.reduce_scatter_single, before torch 2.13 reduce_scatter_tensor."""
        return torch_names.reduce_scatter_single(out, x, REDUCE_OPS[op], group=group, async_op=async_op)

    def all_to_all(
        self, outs: list[Tensor], xs: list[Tensor], group: ProcessGroup, async_op: bool = False
    ) -> Any:
        """dist.all_to_all."""
        return dist.all_to_all(outs, xs, group=group, async_op=async_op)

    def all_to_all_single(
        self,
        out: Tensor,
        x: Tensor,
        out_splits: list[int] | None,
        in_splits: list[int] | None,
        group: ProcessGroup,
        async_op: bool = False,
    ) -> Any:
        """dist.all_to_all_single."""
        return dist.all_to_all_single(out, x, out_splits, in_splits, group=group, async_op=async_op)

    def broadcast(self, x: Tensor, root: int, group: ProcessGroup, async_op: bool = False) -> Any:
        """dist.broadcast."""
        return dist.broadcast(x, group=group, async_op=async_op, group_src=root)

    def reduce(self, x: Tensor, op: str, root: int, group: ProcessGroup, async_op: bool = False) -> Any:
        """dist.reduce."""
        return dist.reduce(x, op=REDUCE_OPS[op], group=group, async_op=async_op, group_dst=root)

    def scatter(
        self, out: Tensor, xs: list[Tensor] | None, root: int, group: ProcessGroup, async_op: bool = False
    ) -> Any:
        """dist.scatter."""
        return dist.scatter(out, xs, group=group, async_op=async_op, group_src=root)

    def gather(
        self, outs: list[Tensor] | None, x: Tensor, root: int, group: ProcessGroup, async_op: bool = False
    ) -> Any:
        """dist.gather."""
        return dist.gather(x, outs, group=group, async_op=async_op, group_dst=root)

    def barrier(self, group: ProcessGroup, async_op: bool = False) -> Any:
        """dist.barrier."""
        return dist.barrier(group=group, async_op=async_op)
