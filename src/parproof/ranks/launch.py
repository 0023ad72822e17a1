"""Starting rank servers. A launcher only has to get `server.main` running somewhere; the pool does the rest."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any, Protocol

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
    "torch.distributed.optim",
    "torch.distributed._functional_collectives",
    "numpy",
    "pytest",
    "parproof.ranks.server",
    "parproof.ranks.group",
    "parproof.ledger.recorder",
)
_RANK_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


class RankProcess(Protocol):
    """A started rank server, as the pool sees it."""

    pid: int

    @property
    def sentinel(self) -> int:
        """Something multiprocessing.connection.wait can wait on; ready when the process has ended."""

    def exitcode(self) -> int | None:
        """Exit code, negative for a signal, None while alive or unknown."""

    def signal(self, number: int) -> None:
        """Send a signal; no error if it has gone."""

    def kill(self) -> None:
        """Kill it and everything it started, and reap it."""


class Launcher(Protocol):
    """Starts rank servers that connect to `address`."""

    name: str
    hosts_are_real: bool

    def start(self, slot: int, address: Any, authkey: bytes) -> RankProcess:
        """Start one; returns at once."""


class LocalLauncher:
    """Forks ranks from a forkserver that has torch loaded: 0.1 s for a pair instead of seconds."""

    name = "local"
    hosts_are_real = True

    def __init__(self) -> None:
        import torch.multiprocessing

        self._context = torch.multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(PRELOAD))

    def start(self, slot: int, address: Any, authkey: bytes) -> RankProcess:
        """Start one rank server on this machine."""
        from parproof.ranks import server

        process = self._context.Process(
            target=server.main, args=(slot, address, authkey), daemon=True, name=f"rank-slot-{slot}"
        )
        with _environment(_RANK_ENVIRONMENT):
            process.start()
        return _LocalProcess(process)


class _LocalProcess:
    def __init__(self, process: Any) -> None:
        self._process = process
        self.pid: int = process.pid

    @property
    def sentinel(self) -> int:
        return int(self._process.sentinel)

    def exitcode(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        # The rank leads a session of its own, so what it started goes with it.
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            self.signal(signal.SIGKILL)
        self._process.join(5)
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
