"""Arguments and results of rank programs as bytes; tensors travel compact, and results from host memory."""

from __future__ import annotations

import ctypes
import io
import itertools
import operator
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from parproof.errors import UsageError
from parproof.ranks.protocol import ProgramRef

if TYPE_CHECKING:
    from torch import Tensor, dtype


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        import torch

        if type(obj) not in (torch.Tensor, torch.nn.Parameter) or not self._may_travel_compact(obj):
            return NotImplemented
        kept = obj.detach().cpu().resolve_conj().resolve_neg().contiguous()
        # Bytes, not numbers: numpy has no bfloat16, and a bool may hold the byte 2 (then it is wrong, and must show).
        # Not through numpy(), after which torch refuses to resize the tensor that it was asked for.
        content = ctypes.string_at(kept.data_ptr(), kept.nbytes)
        is_parameter = type(obj) is torch.nn.Parameter
        return _tensor, (content, obj.dtype, tuple(obj.shape), obj.requires_grad, is_parameter)

    def _may_travel_compact(self, obj: Tensor) -> bool:
        import torch

        return obj.layout == torch.strided and not obj.is_quantized and obj.device.type in ("cpu", "cuda")


class _ArgumentPickler(_Pickler):
    """A tensor that is more than its elements in order (a view, one with attributes) goes as torch packs it."""

    def _may_travel_compact(self, obj: Tensor) -> bool:
        return (
            super()._may_travel_compact(obj)
            and obj.device.type == "cpu"
            and obj.stride() == _strides(obj.shape)
            and obj.untyped_storage().nbytes() == obj.nbytes
            and not (obj.is_conj() or obj.is_neg() or obj.__dict__ or obj._backward_hooks)
        )


def pickled(value: Any, pickler: type[_Pickler] = _Pickler) -> bytes:
    """Like pickle.dumps, but a tensor is its elements only, in order, as a contiguous tensor on the CPU.

    torch's own way packs a file a tensor, which costs ten times as much, and brings the whole storage behind a
    view. A tensor on a GPU becomes one on the CPU: the reader may not have the device, and must not touch CUDA.
    """
    buffer = io.BytesIO()
    pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a tensor of its own, made in this shape."""
    inner = itertools.accumulate((max(1, n) for n in reversed(shape[1:])), operator.mul, initial=1)
    return tuple(inner)[: len(shape)][::-1]


def _tensor(
    content: bytes, kind: dtype, shape: tuple[int, ...], requires_grad: bool, is_parameter: bool
) -> Tensor:
    import torch

    if not content:
        made = torch.empty(shape, dtype=kind)
    else:
        # Memory of its own, as torch makes it: it may be resized.
        made = torch.frombuffer(bytearray(content), dtype=torch.uint8).clone().view(kind).reshape(shape)
    if is_parameter:
        return torch.nn.Parameter(made, requires_grad)
    return made.requires_grad_(requires_grad)


def pickled_result(value: Any, program: ProgramRef) -> bytes:
    """See `pickled`. Errors: UsageError for what cannot travel."""
    try:
        return pickled(value)
    except Exception as exception:
        raise UsageError(
            f"rank program returned {type(value).__name__}, which cannot be pickled: {exception}",
            expected="plain data (numbers, strings, tensors, lists, dicts)",
            where=str(program),
            next_step="return .detach() tensors or numbers instead of live objects",
        ) from exception


def pickled_arguments(reference: ProgramRef, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bytes:
    """As they are, views too. Errors: UsageError for what another process cannot rebuild."""
    try:
        return pickled((arguments, keywords), _ArgumentPickler)
    except Exception as exception:
        raise UsageError(
            f"an argument cannot be pickled: {exception}",
            expected="plain data, or objects that another process can rebuild by name",
            where=str(reference),
            next_step="build the object inside the rank program",
        ) from exception
