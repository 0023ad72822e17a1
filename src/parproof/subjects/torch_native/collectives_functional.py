"""torch's functional collectives: traceable, differentiable, waited for here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch.distributed._functional_collectives as functional
from torch import Tensor
from torch.distributed import ProcessGroup

from parproof import torch_names
from parproof.subjects.torch_native.collectives import Collectives


def _waited(x: Any) -> Any:
    return x.wait() if isinstance(x, functional.AsyncCollectiveTensor) else x


class FunctionalCollectives:
    """See parproof.subjects.collectives_protocol."""

    algorithms: Mapping[str, str] = MappingProxyType({**Collectives.algorithms, "coalesced": "one_call"})

    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup) -> Any:
        """funcol.all_reduce."""
        return _waited(functional.all_reduce(x, op, group))

    def all_gather(self, x: Tensor, dim: int, group: ProcessGroup) -> Any:
        """funcol.all_gather_single."""
        return _waited(torch_names.functional_all_gather_autograd(x, dim, group))

    def reduce_scatter(self, x: Tensor, op: str, dim: int, group: ProcessGroup) -> Any:
        """funcol.reduce_scatter_single."""
        return _waited(torch_names.functional_reduce_scatter_autograd(x, op, dim, group))

    def all_to_all(
        self, x: Tensor, out_splits: list[int] | None, in_splits: list[int] | None, group: ProcessGroup
    ) -> Any:
        """funcol.all_to_all_single_autograd."""
        return _waited(functional.all_to_all_single_autograd(x, out_splits, in_splits, group))

    def broadcast(self, x: Tensor, root: int, group: ProcessGroup) -> Any:
        """funcol.broadcast."""
        return _waited(functional.broadcast(x, root, group))

    def permute(self, x: Tensor, targets: list[int], group: ProcessGroup) -> Any:
        """funcol.permute_tensor."""
        return _waited(functional.permute_tensor(x, targets, group))

    def all_reduce_coalesced(self, xs: list[Tensor], op: str, group: ProcessGroup) -> list[Any]:
        """funcol.all_reduce_coalesced."""
        return [_waited(x) for x in functional.all_reduce_coalesced(xs, op, group)]

    def all_gather_coalesced(self, xs: list[Tensor], group: ProcessGroup) -> list[Any]:
        """funcol.all_gather_single_coalesced."""
        return [_waited(x) for x in torch_names.functional_all_gather_coalesced(xs, group)]

    def reduce_scatter_coalesced(self, xs: list[Tensor], op: str, group: ProcessGroup) -> list[Any]:
        """funcol.reduce_scatter_single_coalesced."""
        made = torch_names.functional_reduce_scatter_coalesced(xs, op, [0] * len(xs), group)
        return [_waited(x) for x in made]
