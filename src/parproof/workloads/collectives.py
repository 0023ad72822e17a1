"""Inputs of the collectives experiment: rank-, slot- and index-coded values, exact in every dtype.

No two ranks hold the same tensor, no tensor is constant or symmetric, and every partial result of a reduction,
in any order, is representable: sums stay within the dtype's exact integers, products use the fourth root of them
(so up to 4 ranks), means use multiples of 12. The values use the low bits and most of the range, so that a
detour through a narrower type shows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from parproof.workloads.collective_cases import LARGE_HALF

# Largest integer up to which every integer is representable (and does not overflow).
EXACT: dict[str, int] = {
    "float64": 2**52,
    "float32": 2**23,
    "bfloat16": 2**8,
    "float16": 2**11,
    "int8": 2**7 - 1,
    "int16": 2**15 - 1,
    "int32": 2**31 - 1,
    "int64": 2**62,
    "uint8": 2**8 - 1,
    "bool": 1,
}
SENTINEL = 77
MAX_RANKS = 4


@functools.lru_cache(maxsize=4096)
def coded(rank: int, slot: int, shape: tuple[int, ...], dtype: str, reduce_op: str | None) -> Tensor:
    """The value of one buffer before the call. Do not write to it: it is shared."""
    index = torch.arange(math.prod(shape), dtype=torch.int64)
    code = _mixed(index + (rank * 64 + slot + 1) * 0x1000003)
    if dtype == "bool":
        return (code % 7 < 4).reshape(shape)
    return _scaled(code, dtype, reduce_op).to(getattr(torch, dtype)).reshape(shape)


def _mixed(key: Tensor) -> Tensor:
    """30 bits that look unrelated for neighbouring keys."""
    key = (key * 0x9E3779B1) & 0xFFFFFFFF
    key = ((key ^ (key >> 15)) * 0x85EBCA6B) & 0xFFFFFFFF
    return ((key ^ (key >> 13)) * 0xC2B2AE35 >> 3) & 0x3FFFFFFF


def _scaled(code: Tensor, dtype: str, reduce_op: str | None) -> Tensor:
    """Integers that use most of what is exact for the reduction."""
    exact = EXACT[dtype]
    signed = dtype != "uint8"
    if reduce_op == "product":
        top = int(exact ** (1 / MAX_RANKS) + 1e-9)
        magnitude = 1 + code % top
        return torch.where((code >> 7) % 3 == 0, -magnitude, magnitude) if signed else magnitude
    step = 12 if reduce_op == "avg" else 1
    top = exact // MAX_RANKS // step
    wide = code * 0x9E3779B1 + (code >> 3)  # more bits than a code has, for the 64-bit types
    return step * (wide % (2 * top + 1) - top if signed else wide % (top + 1))


# layout → (shape of the base around a view [r, c], how the view is taken)
_BASES: dict[str, tuple[Callable[[int, int], tuple[int, int]], Callable[[Tensor, int, int], Tensor]]] = {
    "transposed": (lambda r, c: (c, r), lambda base, r, c: base.t()),
    "strided": (lambda r, c: (r, 2 * c), lambda base, r, c: base[:, ::2]),
    "column_view": (lambda r, c: (r, c + 3), lambda base, r, c: base[:, 1 : 1 + c]),
    "sliced": (lambda r, c: (r + 2, c), lambda base, r, c: base[1 : 1 + r]),
}


def _view_of(base: Tensor, shape: tuple[int, ...], layout: str) -> Tensor:
    if layout in _BASES and len(shape) == 2:
        return _BASES[layout][1](base, *shape)
    return base[: shape[0]] if shape else base[1]


def laid_out(values: Tensor, layout: str) -> tuple[Tensor, Tensor]:
    """(view that holds the values, its base): the base holds SENTINEL wherever the view does not reach.

    Even «contiguous» has a row (0-dim: an element on both sides) behind it, so that a wrong length is seen.
    """
    shape = tuple(values.shape)
    if layout in _BASES and len(shape) == 2:
        base_shape: tuple[int, ...] = _BASES[layout][0](*shape)
    else:
        base_shape = (shape[0] + 1, *shape[1:]) if shape else (3,)
    base = torch.full(base_shape, SENTINEL).to(values.dtype)
    view = _view_of(base, shape, layout)
    view.copy_(values)
    return view, base


def surroundings(base: Tensor, shape: tuple[int, ...], layout: str) -> Tensor:
    """The elements of a base (of `laid_out`) that do not belong to the view."""
    marks = torch.ones(base.shape, dtype=torch.bool)
    _view_of(marks, shape, layout).fill_(False)
    return base[marks]


def large_half(rank: int, name: str) -> Tensor:
    """One period of a large float16 tensor.

    exact       small integers, and every 1009th so large that the sum of two is infinite
    full_range  anything a float16 can hold: sums have to be rounded once, to the nearest, and some are infinite
    """
    _, period = LARGE_HALF[name]
    if name == "full_range":
        return (coded(rank, 0, (period,), "int64", None) % 131009 - 65504).half()
    x = coded(rank, 0, (period,), "float16", "sum").clone()
    x[::1009] = 60000.0
    return x
