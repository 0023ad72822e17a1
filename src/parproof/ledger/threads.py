"""Follows a rank program into the threads that run its code, since a dispatch mode is thread-local."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)

Dispatch = Callable[[Any, Any, Any, Any], Any]
_FUTURE_METHODS = ("then", "add_done_callback")


class Relay(TorchDispatchMode):
    """A mode that hands every operator to a function; `Follower` puts one into each thread."""

    supports_higher_order_operators = True

    def __init__(self, dispatch: Dispatch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._dispatch = dispatch

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """A third of the cost of the Python detour; compilation does not reach into this mode, see below."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code stays compiled; the calls it makes are seen when it runs."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._dispatch(func, types, args, kwargs)


class Follower:
    """Context manager: operators of threads and of future callbacks go to `dispatch` too.

    Threads    that `threading` starts inside, by threading.setprofile, which calls once at the start of a
               thread. A thread that outlives the block passes its operators on to `dispatch` for good.
    Callbacks  of torch futures made inside (DDP communication hooks): a backend runs them on its own thread,
               so that `then` has to be wrapped while the block is open.
    Not        threads made by C++ or by _thread.start_new_thread.
    """

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._previous_profile: Any = None
        self._previous_methods: dict[str, Any] = {}

    def __enter__(self) -> Follower:
        self._previous_profile = threading.getprofile()
        threading.setprofile(self._first_event)
        for name in _FUTURE_METHODS:
            self._previous_methods[name] = getattr(torch._C.Future, name)
            setattr(torch._C.Future, name, self._followed(self._previous_methods[name]))
        return self

    def __exit__(self, *exception: object) -> None:
        # Somebody may have installed a profile of their own in between; theirs stays.
        if threading.getprofile() == self._first_event:
            threading.setprofile(self._previous_profile)
        for name, method in self._previous_methods.items():
            setattr(torch._C.Future, name, method)

    def _first_event(self, frame: FrameType, event: str, argument: Any) -> None:
        """Runs in the new thread, before its target."""
        sys.setprofile(self._previous_profile)
        if self._previous_profile is not None:
            self._previous_profile(frame, event, argument)
        # Never popped: the mode stack is the thread's own and ends with it. Pushed without __enter__, which
        # would write a flag of the whole process that only the main thread may own.
        _push_mode(Relay(self._dispatch))

    def _followed(self, method: Any) -> Any:
        @wraps(method)
        def register(future: Any, callback: Callable[[Any], Any]) -> Any:
            @wraps(callback)
            def run(done: Any) -> Any:
                if is_followed():
                    return callback(done)
                _push_mode(Relay(self._dispatch))
                try:
                    return callback(done)
                finally:
                    _pop_mode()

            return method(future, run)

        return register


def is_followed() -> bool:
    """Does the running thread send its operators to a recorder already?"""
    return any(isinstance(mode, Relay) for mode in _get_current_dispatch_mode_stack())
