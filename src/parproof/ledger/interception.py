"""Puts one function in front of every communication operator of torch's dispatcher, on every thread.

Kernels at the dispatch key BackendSelect, which every call passes on its way to the backend: below autograd, dispatch
modes and tensor subclasses, so that what is seen is what is sent. Other operators are left alone: a rank program runs
at its own speed, where a dispatch mode would make each of its operators take a detour through Python.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from parproof.ledger.calls import Call
from parproof.ledger.operators import call_of, communication_operators

_KEY = "BackendSelect"
Handler = Callable[[Callable[[], Any], Call, dict[str, Any]], Any]


class Interception:
    """Hands every communication call to `handle(make, call, arguments)`, which has to call `make()`.

    Calls that torch makes of its own while it carries one out (a functional operator uses a classic one) are part of it
    and are not handed on. Cost: 4 ms to insert, then nothing that can be measured beside what `handle` does.
    Not seen: a backend object called directly, and operators that are registered after `insert`.
    """

    def __init__(self, handle: Handler) -> None:
        self._handle = handle
        self._libraries: dict[str, torch.library.Library] = {}
        self._operators: set[str] = set()
        self._newest = ""
        self._num_defined = 0
        self._thread = _Thread()

    def insert(self) -> None:
        """Stand in front of all operators that are registered by now."""
        if self._libraries and not self._may_have_more():
            return
        for operator in communication_operators():
            name = operator.name()
            if name not in self._operators:
                space, _, rest = name.partition("::")
                library = self._libraries.setdefault(space, torch.library.Library(space, "IMPL"))
                library.impl(rest, self._kernel(operator), _KEY, with_keyset=True)
                self._operators.add(name)
        self._newest, self._num_defined = next(reversed(sys.modules)), len(torch.library._defs)

    def _may_have_more(self) -> bool:
        """To list all operators takes longer than a small test. New ones come with modules of torch, or torch.library."""
        if len(torch.library._defs) != self._num_defined:
            return True
        # Only from the end: who touches the names of all modules in a forked process copies a thousand pages.
        known, self._newest = self._newest, next(reversed(sys.modules))
        new = itertools.takewhile(lambda name: name != known, reversed(sys.modules))
        return any(name.startswith("torch") for name in new)

    def remove(self) -> None:
        """Leave every operator as torch made it."""
        for library in self._libraries.values():
            library._destroy()
        self._libraries.clear()
        self._operators.clear()

    def _kernel(self, operator: Any) -> Callable[..., Any]:
        below = torch._C._dispatch_keyset_full_after(getattr(torch._C.DispatchKey, _KEY))
        names = tuple(argument.name for argument in operator._schema.arguments)
        call, go_on, thread = call_of(operator.name()), operator._handle.redispatch_boxed, self._thread

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            if thread.is_in_a_call:
                return go_on(keyset & below, *args, **kwargs)
            thread.is_in_a_call = True
            try:
                named = dict(zip(names, args, strict=False)) | kwargs
                return self._handle(lambda: go_on(keyset & below, *args, **kwargs), call, named)
            finally:
                thread.is_in_a_call = False

        return kernel


class _Thread(threading.local):
    is_in_a_call = False
