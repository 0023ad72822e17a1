"""Names that torch 2.13 changed, resolved in one place; everything else in torch is called by its own name.

Each name here is the one of torch 2.13; on 2.11 and 2.12 it leads to the older function of the same signature.
The older names still exist in 2.13, but warn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
import torch.distributed._functional_collectives as _functional

_Collective = Callable[..., Any]


def _first(module: Any, *names: str) -> _Collective:
    """The first of these names that the installed torch has, without touching the others (they may warn)."""
    for name in names:
        if hasattr(module, name):
            found: _Collective = getattr(module, name)
            return found
    raise ImportError(f"{module.__name__} has none of {', '.join(names)}: torch 2.11 or later is supported")


all_gather_single = _first(dist, "all_gather_single", "all_gather_into_tensor")
reduce_scatter_single = _first(dist, "reduce_scatter_single", "reduce_scatter_tensor")

# Functional: (tensor, gather_dim, group) and (tensor, reduce op, scatter_dim, group).
functional_all_gather = _first(_functional, "all_gather_single", "all_gather_tensor")
functional_all_gather_autograd = _first(
    _functional, "all_gather_single_autograd", "all_gather_tensor_autograd"
)
functional_all_gather_coalesced = _first(
    _functional, "all_gather_single_coalesced", "all_gather_into_tensor_coalesced"
)
functional_reduce_scatter = _first(_functional, "reduce_scatter_single", "reduce_scatter_tensor")
functional_reduce_scatter_autograd = _first(
    _functional, "reduce_scatter_single_autograd", "reduce_scatter_tensor_autograd"
)
functional_reduce_scatter_coalesced = _first(
    _functional, "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"
)
