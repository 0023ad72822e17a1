"""Names that torch 2.13 changed, resolved in one place; everything else in torch is called by its own name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

_Collective = Callable[..., Any]

all_gather_single: _Collective = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single: _Collective = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
