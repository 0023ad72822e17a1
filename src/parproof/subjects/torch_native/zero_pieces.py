"""Where a rank's part of a tensor lies in the whole."""

from __future__ import annotations

from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset


def located(tensor: Tensor) -> list[tuple[int, Tensor]]:
    """(start in the flattened whole, flat part). DTensors are sharded by rows, so parts are contiguous."""
    if not isinstance(tensor, DTensor):
        return [(0, tensor.detach().flatten())]
    local = tensor.to_local().detach()
    if local.numel() == 0:
        return []
    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return [(offset[0] * local[0].numel(), local.flatten())]
