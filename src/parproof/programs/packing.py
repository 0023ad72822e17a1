"""Many small tensors as a few byte strings: pickling each tensor by itself costs more than the collective."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packed:
    """Tensors on their way between processes, bit for bit (a bool that holds the byte 2 stays one)."""

    shapes: tuple[tuple[torch.dtype, tuple[int, ...]], ...]
    data: dict[torch.dtype, bytes]

    def tensors(self) -> list[Tensor]:
        """The tensors, in the order they were packed."""
        flat = {
            dtype: torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(dtype)
            for dtype, raw in self.data.items()
            if raw
        }
        place: dict[torch.dtype, int] = defaultdict(int)
        found = []
        for dtype, shape in self.shapes:
            count = torch.Size(shape).numel()
            start = place[dtype]
            place[dtype] += count
            source = flat.get(dtype, torch.empty(0, dtype=dtype))
            found.append(source[start : start + count].reshape(shape))
        return found


def pack(tensors: Sequence[Tensor]) -> Packed:
    """Copy the tensors (any strides, CPU or not) into one string of bytes per dtype."""
    by_dtype: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    shapes = []
    for x in tensors:
        x = x.detach().cpu()
        shapes.append((x.dtype, tuple(x.shape)))
        by_dtype[x.dtype].append(x.contiguous().reshape(-1).view(torch.uint8))
    data = {dtype: torch.cat(parts).numpy().tobytes() for dtype, parts in by_dtype.items()}
    return Packed(tuple(shapes), data)
