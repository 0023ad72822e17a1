"""The rest of the reference's differentiable collectives: rooted ones, and two more shapes of what is there already.

Backward passes, as in collectives_functional:
    reduce ← broadcast from the root     gather ← scatter by the root     scatter ← gather to the root
A minimum or maximum needs the root's result as well, to know who holds it; a product needs all ranks' inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.distributed import ProcessGroup

from parproof.subjects.reference.collectives import Collectives
from parproof.subjects.reference.collectives_functional import FunctionalCollectives, through


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, wire: Collectives, op: str, root: int, group: ProcessGroup) -> Tensor:
        ctx.settings = wire, op, root, group
        out = x.detach().contiguous().clone()
        wire.reduce(out, op, root, group)
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        wire, op, root, group = ctx.settings
        x, out = ctx.saved_tensors
        total = _of_the_root(wire, grad, root, group)
        y = _of_the_root(wire, out, root, group) if op in ("min", "max") else out
        return through(wire, op, x, y, total, group), None, None, None, None


def _of_the_root(wire: Collectives, x: Tensor, root: int, group: ProcessGroup) -> Tensor:
    found = x.contiguous().clone()
    wire.broadcast(found, root, group)
    return found


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, wire: Collectives, root: int, group: ProcessGroup) -> Tensor:
        ctx.settings = wire, root, group
        return _gathered(wire, x, root, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        wire, root, group = ctx.settings
        return _scattered(wire, grad, root, group), None, None, None


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, wire: Collectives, root: int, group: ProcessGroup) -> Tensor:
        ctx.settings = wire, root, group
        return _scattered(wire, x, root, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        wire, root, group = ctx.settings
        # What is not the root's x has no influence on anything: there it is zeros.
        return _gathered(wire, grad, root, group), None, None, None


def _gathered(wire: Collectives, x: Tensor, root: int, group: ProcessGroup) -> Tensor:
    """All x, joined, at the root; as many zeros elsewhere."""
    outs = [torch.zeros_like(x, memory_format=torch.contiguous_format) for _ in range(group.size())]
    wire.gather(outs if group.rank() == root else None, x, root, group)
    return torch.cat(outs)


def _scattered(wire: Collectives, x: Tensor, root: int, group: ProcessGroup) -> Tensor:
    parts = list(x.tensor_split(group.size()))
    out = torch.empty_like(parts[group.rank()], memory_format=torch.contiguous_format)
    wire.scatter(out, parts if group.rank() == root else None, root, group)
    return out


class AutogradCollectives(FunctionalCollectives):
    """See parproof.subjects.collectives_protocol."""

    algorithms: Mapping[str, str] = MappingProxyType(
        {
            **FunctionalCollectives.algorithms,
            "all_to_all_list": FunctionalCollectives.algorithms["all_to_all"],
        }
    )

    def reduce(self, x: Tensor, op: str, root: int, group: ProcessGroup) -> Any:
        """Binomial tree up, and down again."""
        return _Reduce.apply(x, self._wire, op, root, group)  # type: ignore[no-untyped-call]

    def gather(self, x: Tensor, root: int, group: ProcessGroup) -> Any:
        """Direct both ways."""
        return _Gather.apply(x, self._wire, root, group)  # type: ignore[no-untyped-call]

    def scatter(self, x: Tensor, root: int, group: ProcessGroup) -> Any:
        """Direct both ways."""
        return _Scatter.apply(x, self._wire, root, group)  # type: ignore[no-untyped-call]

    def all_gather_single(self, x: Tensor, group: ProcessGroup) -> Any:
        """Ring both ways."""
        return self.all_gather(x, 0, group)

    def all_to_all_list(self, xs: list[Tensor], group: ProcessGroup) -> Any:
        """Direct both ways, on equal blocks of rows."""
        return self.all_to_all(torch.cat(xs), None, None, group).tensor_split(group.size())
