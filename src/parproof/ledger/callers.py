"""Who made a call: walks the Python frames from the operator to the first line that is not torch's."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import CodeType
from typing import NamedTuple

import torch

_TORCH = os.path.dirname(torch.__file__) + os.sep
_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep
_PACKAGES = sysconfig.get_paths()["purelib"] + os.sep
_OWN = tuple(
    os.path.join(os.path.dirname(os.path.dirname(__file__)), part) + os.sep for part in ("ledger", "ranks")
)
_PLUMBING = frozenset(
    {
        "wrapper",
        "_wrapped_call_impl",
        "_call_impl",
        "__call__",
        "inner",
        "inner_func",
        "_fn",
        "compile_wrapper",
        "decorate_context",
    }
)
_OBJECT_FUNCTIONS = frozenset(
    {
        "all_gather_object",
        "broadcast_object_list",
        "gather_object",
        "scatter_object_list",
        "send_object_list",
        "recv_object_list",
    }
)
_BLOCKING_FUNCTIONS = frozenset({"send", "recv", "send_object_list", "recv_object_list"})
_COLLECTIVES_FILE = os.path.join(_TORCH, "distributed", "distributed_c10d.py")


class Caller(NamedTuple):
    """The outermost torch function and the file:line that called it.

    is_object_traffic   an object collective is between; is_blocking: a send or receive that waits is
    """

    via: str
    where: str
    is_object_traffic: bool
    is_blocking: bool


class _Place(NamedTuple):
    """What one code object says: a torch function worth naming, plumbing, or the caller's own code."""

    is_users: bool
    via: str
    is_object_function: bool
    is_blocking_function: bool
    file: str


# By identity, since hashing a code object walks all of it; the object is kept, so that its id stays its own.
_PLACES: dict[int, tuple[CodeType, _Place]] = {}


def caller() -> Caller:
    """Walk outwards. Torch calls back into user code (hooks, autograd functions): the innermost user wins."""
    frame = sys._getframe(1)
    via, is_object_traffic, is_blocking = "", False, False
    while True:
        known = _PLACES.get(id(frame.f_code))
        place = known[1] if known else _place(frame.f_code)
        if place.is_users:
            return Caller(via, f"{place.file}:{frame.f_lineno}", is_object_traffic, is_blocking)
        is_object_traffic = is_object_traffic or place.is_object_function
        is_blocking = is_blocking or place.is_blocking_function
        via = place.via or via
        if frame.f_back is None:
            return Caller(via, "", is_object_traffic, is_blocking)
        frame = frame.f_back


def _place(code: CodeType) -> _Place:
    path, name = code.co_filename, code.co_name
    in_torch = path.startswith(_TORCH)
    users = not (
        in_torch
        or path.startswith(_OWN)
        # Frozen modules, and code that torch.compile wrote.
        or path.startswith("<")
        or "torchinductor_" in path
        or (path.startswith(_STANDARD_LIBRARY) and not path.startswith(_PACKAGES))
    )
    named = in_torch and name not in _PLUMBING
    place = _Place(
        is_users=users,
        via=code.co_qualname.replace(".<locals>", "") if named else "",
        is_object_function=path == _COLLECTIVES_FILE and name in _OBJECT_FUNCTIONS,
        is_blocking_function=path == _COLLECTIVES_FILE and name in _BLOCKING_FUNCTIONS,
        file=os.path.basename(path),
    )
    _PLACES[id(code)] = (code, place)
    return place
