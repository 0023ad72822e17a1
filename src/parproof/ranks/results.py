"""Results of rank programs as bytes: tensors travel by value and from host memory."""

from __future__ import annotations

import io
import pickle
from typing import Any


def pickled(value: Any) -> bytes:
    """Like pickle.dumps, but a tensor on a GPU becomes one on the CPU: the reader may not have the device, and
    must not touch CUDA."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        import torch

        if isinstance(obj, torch.Tensor) and type(obj) in (torch.Tensor, torch.nn.Parameter) and obj.is_cuda:
            return obj.detach().cpu().__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return NotImplemented
