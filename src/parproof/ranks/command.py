"""A launcher that starts rank servers by a command, as ssh, torchrun or a batch system would.

Slow (every rank loads torch), general (nothing but a command line and a network address is needed).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from parproof.ranks.launch import Network, RankProcess, kill_with_family

SERVER = (sys.executable, "-m", "parproof.ranks.server")


class CommandLauncher(Network):
    """Runs `command(slot)` followed by --address and --slot, and gives the key on standard input.

    host      address of this machine that the ranks can reach
    command   what starts a rank server on the host of a slot; a plain local process when it is left out
    """

    name = "command"
    hosts_are_real = True
    shares_this_host = False

    def __init__(
        self, host: str = "127.0.0.1", command: Callable[[int], Sequence[str]] = lambda slot: SERVER
    ) -> None:
        super().__init__(host)
        self._command = command

    def start(self, slot: int, address: Any, authkey: bytes) -> RankProcess:
        """Start one rank server."""
        host, port = address
        process = subprocess.Popen(
            [*self._command(slot), "--address", f"{host}:{port}", "--slot", str(slot)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        with contextlib.suppress(OSError), process.stdin:
            process.stdin.write(authkey.hex().encode() + b"\n")
        return _CommandProcess(process)

    def sweep(self) -> None:
        """Ranks elsewhere are ended by what started them."""


class _CommandProcess:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self.sentinel = os.pidfd_open(process.pid)

    def exitcode(self) -> int | None:
        return self._process.poll()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        kill_with_family(self.pid, is_alive=self._process.poll() is None)
        self._process.wait(5)
        with contextlib.suppress(OSError):
            os.close(self.sentinel)
