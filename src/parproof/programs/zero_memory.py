"""Counts the bytes of training state that a rank really holds: storages, not tensors."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from parproof.subjects.zero_protocol import StateTraining

PATIENCE_S = 2.0


class Census:
    """Bytes by kind, and what else came to life since the census began.

    `other` finds what a subject holds beside what it says it holds: every floating-point tensor that Python
    can see. Memory that only C++ knows stays invisible.
    """

    def __init__(self) -> None:
        self._before = {storage.data_ptr() for storage, _ in _storages(_live_tensors())}

    def take(self, training: StateTraining, *, kept_bytes: int = 0) -> dict[str, int]:
        """Bytes now; zero-dimensional tensors (step counters) are counted apart.

        A backend's thread may let go of a finished message a moment later, so more than `kept_bytes` of
        other memory is looked at again for up to two seconds.
        """
        end = time.monotonic() + PATIENCE_S
        while True:
            found = self._count(training)
            if found["other"] == kept_bytes or time.monotonic() > end:
                return found
            time.sleep(0.005)

    def _count(self, training: StateTraining) -> dict[str, int]:
        counted: set[int] = set()
        found: dict[str, int] = {"counters": 0}
        for kind, tensors in training.held().items():
            found[kind] = 0
            for storage, tensor in _storages(tensors):
                if storage.data_ptr() not in counted:
                    counted.add(storage.data_ptr())
                    found["counters" if tensor.ndim == 0 else kind] += storage.nbytes()
        strange = {
            storage.data_ptr(): storage.nbytes()
            for storage, tensor in _storages(_live_tensors())
            if tensor.ndim and tensor.is_floating_point()
        }
        found["other"] = sum(n for key, n in strange.items() if key not in counted | self._before)
        return found


def _live_tensors() -> list[Tensor]:
    gc.collect()
    return [found for found in gc.get_objects() if isinstance(found, Tensor)]


def _storages(tensors: Iterable[Tensor]) -> Iterator[tuple[torch.UntypedStorage, Tensor]]:
    """Storages with memory, and the tensor each was found by."""
    for tensor in tensors:
        try:
            storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
        except (NotImplementedError, RuntimeError):
            continue
        if storage.nbytes():
            yield storage, tensor
