"""The launcher of this machine: ranks forked from a server that has torch loaded, 0.1 s for a pair."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import secrets
import signal
from collections.abc import Iterator, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import wait
from typing import Any

from parproof.ranks import orphans
from parproof.ranks.launch import OneHost, RankProcess, kill_with_family

# Without all of these every rank would load them at first use: 6 to 27 s for DTensor or a checkpoint.
PRELOAD = (
    "torch",
    "torch.distributed",
    "torch._dynamo",
    "torch.distributed.tensor",
    "torch.distributed.tensor.parallel",
    "torch.distributed.tensor.experimental",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.checkpoint._fsspec_filesystem",
    "torch.distributed.optim",
    "torch.distributed._functional_collectives",
    "torch.profiler._cupti_monitor",
    "torch.utils.serialization.config",
    "torch.utils._sympy.reference",
    "numpy",
    "pytest",
    "parproof.ranks.server",
    "parproof.ranks.group",
)
_FIRST, _LAST = "parproof.ranks.preload.first", "parproof.ranks.preload.last"
# Ranks share the cores: threads that spin while they wait make everything 3 to 10 times slower.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
_TOKEN = secrets.token_hex(16)


class LocalLauncher(OneHost):
    """Forks rank servers from multiprocessing's forkserver. CUDA is never touched before the fork.

    preload   modules that ranks are likely to need, besides torch's: loaded once, not by each new rank
    """

    name = "local"

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([_FIRST, *PRELOAD, *preload, _LAST])
        # It loads torch on its own core while this process does the same.
        before = _forkserver_pid()
        with _environment(_ENVIRONMENT | {orphans.TOKEN_VARIABLE: _TOKEN}):
            forkserver.ensure_running()
        self._unused = None if before else _forkserver_pid()

    def start(self, slot: int, address: Any, authkey: bytes) -> RankProcess:
        """Start one rank server on this machine."""
        from parproof.ranks import server

        self._unused = None
        process = self._context.Process(
            target=server.main, args=(slot, address, authkey), daemon=True, name=f"rank-slot-{slot}"
        )
        with _environment(_ENVIRONMENT | {orphans.TOKEN_VARIABLE: _TOKEN}):
            process.start()
        return _ForkedProcess(process)

    def sweep(self) -> None:
        """End what ranks that died by themselves left behind, and a server that loads torch for nobody."""
        orphans.kill_orphans(_TOKEN)
        if self._unused is not None and self._unused == _forkserver_pid():
            # By itself it would end too, but only when everything is loaded.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._unused, signal.SIGKILL)
            own: Any = forkserver._forkserver
            own._stop()


def _forkserver_pid() -> int | None:
    own: Any = forkserver._forkserver
    pid: int | None = own._forkserver_pid
    return pid


class _ForkedProcess:
    def __init__(self, process: Any) -> None:
        self._process = process
        self._code: int | None = None
        self.pid: int = process.pid

    @property
    def sentinel(self) -> int:
        return int(self._process.sentinel)

    def exitcode(self) -> int | None:
        if self._code is None:
            self._code = self._process.exitcode
        return self._code

    def signal(self, number: int) -> None:
        if not wait([self.sentinel], timeout=0):
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        ended = bool(wait([self.sentinel], timeout=0))
        # A server that ends by itself has left nothing: it looked after every job, and told.
        if not ended or self.exitcode() != 0:
            kill_with_family(self.pid, is_alive=not ended)
        self._process.join(5)
        with contextlib.suppress(ValueError):
            self._process.close()


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables for the moment in which the forkserver may start and read them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
