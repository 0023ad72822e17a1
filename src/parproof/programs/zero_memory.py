"""Counts the bytes of training state that a rank really holds: storages, not tensors."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from parproof.subjects.zero_protocol import StateTraining


class Census:
    """Bytes by kind, and what else came to life since the census began.

    `other` finds what a subject holds beside what it says it holds: every tensor that Python can see. Memory
    held in C++ only (DDP's buckets, when gradients are not views of them) stays invisible.
    """

    def __init__(self) -> None:
        self._before = self._keys(_live_tensors())

    def take(self, training: StateTraining) -> dict[str, int]:
        """Bytes now; zero-dimensional tensors (step counters) are counted apart."""
        counted: set[int] = set()
        found: dict[str, int] = {"counters": 0}
        for kind, tensors in training.held().items():
            found[kind] = 0
            for tensor in tensors:
                for storage in _storages(tensor):
                    if storage.data_ptr() in counted:
                        continue
                    counted.add(storage.data_ptr())
                    found["counters" if tensor.ndim == 0 else kind] += storage.nbytes()
        found["other"] = 0
        for tensor in _live_tensors():
            for storage in _storages(tensor):
                if storage.nbytes() and storage.data_ptr() not in counted | self._before and tensor.ndim:
                    counted.add(storage.data_ptr())
                    found["other"] += storage.nbytes()
        return found

    @staticmethod
    def _keys(tensors: Iterable[Tensor]) -> set[int]:
        return {storage.data_ptr() for tensor in tensors for storage in _storages(tensor)}


def _live_tensors() -> list[Tensor]:
    gc.collect()
    return [found for found in gc.get_objects() if isinstance(found, Tensor)]


def _storages(tensor: Any) -> list[torch.UntypedStorage]:
    inner = getattr(tensor, "_local_tensor", tensor)
    try:
        return [inner.untyped_storage()]
    except (NotImplementedError, RuntimeError):
        return []
