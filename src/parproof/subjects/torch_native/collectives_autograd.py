"""torch.distributed.nn.functional: collectives with gradients, deprecated in torch 2.13 in favour of the functional ones."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.nn import functional as differentiable

from parproof.subjects.torch_native.collectives import REDUCE_OPS, Collectives


class AutogradCollectives:
    """See parproof.subjects.collectives_protocol. Roots are given as global ranks, as its documentation has it."""

    algorithms: Mapping[str, str] = Collectives.algorithms | MappingProxyType(
        {
            "coalesced": "one_by_one",
            "all_to_all_list": "scatters",
            "all_gather.gradient": "scatters",
            "nonlinear": "as_sums",
        }
    )

    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup) -> Any:
        """dist.nn.functional.all_reduce."""
        return differentiable.all_reduce(x, REDUCE_OPS[op], group)

    def all_gather(self, x: Tensor, dim: int, group: ProcessGroup) -> Any:
        """dist.nn.functional.all_gather, joined."""
        return torch.cat(differentiable.all_gather(x, group), dim)

    def reduce_scatter(self, x: Tensor, op: str, dim: int, group: ProcessGroup) -> Any:
        """dist.nn.functional.reduce_scatter of the parts."""
        parts = list(x.tensor_split(group.size(), dim))
        room = torch.empty_like(parts[0], requires_grad=False)
        return differentiable.reduce_scatter(room, parts, REDUCE_OPS[op], group)

    def all_to_all(
        self, x: Tensor, out_splits: list[int] | None, in_splits: list[int] | None, group: ProcessGroup
    ) -> Any:
        """dist.nn.functional.all_to_all_single."""
        rows = x.shape[0] if out_splits is None else sum(out_splits)
        room = x.detach().new_empty((rows, *x.shape[1:]))
        return differentiable.all_to_all_single(room, x, out_splits, in_splits, group)

    def broadcast(self, x: Tensor, root: int, group: ProcessGroup) -> Any:
        """dist.nn.functional.broadcast."""
        source = dist.get_global_rank(group, root)
        return differentiable.broadcast(x, source, group)

    def reduce(self, x: Tensor, op: str, root: int, group: ProcessGroup) -> Any:
        """dist.nn.functional.reduce."""
        return differentiable.reduce(x, dist.get_global_rank(group, root), REDUCE_OPS[op], group)

    def gather(self, x: Tensor, root: int, group: ProcessGroup) -> Any:
        """dist.nn.functional.gather, joined."""
        return torch.cat(differentiable.gather(x, dist.get_global_rank(group, root), group))

    def scatter(self, x: Tensor, root: int, group: ProcessGroup) -> Any:
        """dist.nn.functional.scatter of the parts: it takes a list on every rank, for the shapes."""
        parts = list(x.tensor_split(group.size()))
        return differentiable.scatter(parts, dist.get_global_rank(group, root), group)

    def all_gather_single(self, x: Tensor, group: ProcessGroup) -> Any:
        """dist.nn.functional._all_gather_base."""
        room = x.detach().new_empty((group.size() * x.shape[0], *x.shape[1:]))
        return differentiable._all_gather_base(room, x, group)

    def all_to_all_list(self, xs: list[Tensor], group: ProcessGroup) -> Any:
        """dist.nn.functional.all_to_all."""
        room = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in xs]
        return differentiable.all_to_all(room, xs, group)
