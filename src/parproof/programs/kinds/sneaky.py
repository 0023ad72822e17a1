"""Communication past the dispatcher, which the groups' own counts must give away, and operators nobody knows yet."""

from __future__ import annotations

import torch
import torch.distributed as dist

from parproof.ranks.context import RankContext


def honest(ctx: RankContext) -> None:
    """One all_reduce over all, one over ranks 0 and 1."""
    group = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(4))
    if ctx.rank < 2:
        dist.all_reduce(torch.ones(4), group=group)


def past_the_dispatcher(ctx: RankContext) -> None:
    """Two of three calls in the subgroup go to the backend object itself."""
    group = dist.new_group([0, 1])
    if ctx.rank < 2:
        dist.all_reduce(torch.ones(4), group=group)
        backend = group._get_backend(torch.device("cpu"))
        for _ in range(2):
            backend.allreduce([torch.ones(4)]).wait()


def brings_an_operator(ctx: RankContext) -> None:
    """Of torch's communication namespace, which the ledger's table does not know."""
    global _library
    _library = torch.library.Library("c10d", "FRAGMENT")
    _library.define("whisper(Tensor message) -> Tensor")
    _library.impl("whisper", torch.clone, "CPU")


def calls_the_operator(ctx: RankContext) -> bool:
    """The one that `brings_an_operator` has registered. Is the ledger's kernel in front of an operator of another kind?"""
    torch.ops.c10d.whisper(torch.ones(4))
    return torch._C._dispatch_has_kernel_for_dispatch_key("aten::add.Tensor", "BackendSelect")


_library: torch.library.Library | None = None


def kernels_in_front(ctx: RankContext) -> list[str]:
    """Communication operators that do not go straight to the backend."""
    names = ("c10d::allreduce_", "c10d::send", "_c10d_functional::all_reduce")
    return [name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, "BackendSelect")]
