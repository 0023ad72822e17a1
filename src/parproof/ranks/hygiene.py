"""What a rank program may have left changed in its process, put back before the next one runs."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import gc
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from parproof.ranks import orphans
from parproof.ranks.protocol import Surroundings

# Each rank's own, whatever the pytest process has under these names.
_OWN_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "GLOO_SOCKET_IFNAME",
    orphans.TOKEN_VARIABLE,
)
_PATIENCE_S = 0.1
_HANDLED = [int(s) for s in signal.valid_signals() if s not in (signal.SIGKILL, signal.SIGSTOP)]
# Without the words that signal.getsignal makes of numbers: this is asked sixty times for every test.
_handler: Callable[[int], Any] = _signal.getsignal


class Hygiene:
    """Remembers the process as it was when it became a rank.

    What can be put back is put back; threads and processes that still run cannot, so they are reported and the
    pool replaces the rank.
    """

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._directory = os.getcwd()
        self._import_path = list(sys.path)
        self._handlers = {number: _handler(number) for number in _HANDLED}
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._threads = set(threading.enumerate())

    def prepare(self, surroundings: Surroundings | None) -> None:
        """The process as it was, in the surroundings that the job asks for."""
        wanted, path, directory = self._environment, self._import_path, self._directory
        if surroundings is not None:
            path, directory = list(surroundings.import_path), surroundings.working_directory
            own = {name: wanted[name] for name in _OWN_VARIABLES if name in wanted}
            wanted = surroundings.environment | own
        self._set_environment(wanted)
        sys.path[:] = path
        with contextlib.suppress(OSError):
            os.chdir(directory)
        os.umask(self._umask)
        for number, handler in self._handlers.items():
            if handler is not None and _handler(number) is not handler:
                signal.signal(number, handler)
        random.seed(0)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(0)
        self._threads = set(threading.enumerate())

    @staticmethod
    def _set_environment(wanted: dict[str, str]) -> None:
        if dict(os.environ) == wanted:
            return
        for name in set(os.environ) - set(wanted):
            del os.environ[name]
        for name, value in wanted.items():
            if os.environ.get(name) != value:
                os.environ[name] = value

    def leftovers(self) -> tuple[str, ...]:
        """Threads and processes started since `prepare` that still run, after a moment to end."""
        end = time.monotonic() + _PATIENCE_S
        while found := self._still_running():
            if time.monotonic() > end:
                break
            gc.collect()
            time.sleep(0.01)
        return found

    def _still_running(self) -> tuple[str, ...]:
        threads = [
            f"thread {thread.name}"
            for thread in threading.enumerate()
            if thread not in self._threads and not _belongs_to_torch(thread)
        ]
        return (*threads, *orphans.living_children())


def _belongs_to_torch(thread: Any) -> bool:
    """C++ threads that ran some Python (autograd, futures) show up as dummies; they wait for work."""
    return isinstance(thread, threading._DummyThread)


def reset_torch(num_threads: int | None) -> None:
    """Global switches of torch that outlive a program."""
    import torch

    # torch.manual_seed asks after every kind of device, which costs more than the rest of this function.
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(0)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.autograd.set_detect_anomaly(False)
    torch.set_autocast_enabled("cpu", False)
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    if num_threads is not None and torch.get_num_threads() != num_threads:
        torch.set_num_threads(num_threads)
