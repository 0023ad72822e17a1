"""What the pool asks of a launcher: start rank servers, and say how they can be reached."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from typing import Any, Protocol

from parproof.ranks import orphans
from parproof.ranks.rendezvous import Rendezvous

_PATH_LIMIT = 100  # bytes of a Unix socket's path that every system takes


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
    """Starts rank servers that connect to `address` and know the key.

    hosts_are_real      False when it emulates hosts
    shares_this_host    ranks see this machine's files, and its working directory and environment mean something
    """

    name: str
    hosts_are_real: bool
    shares_this_host: bool

    def start(self, slot: int, address: Any, authkey: bytes) -> RankProcess:
        """Start one; returns at once."""

    def listen(self, directory: str, backlog: int) -> tuple[socket.socket, Any]:
        """A listening socket that its ranks can reach, and its address."""

    def rendezvous(self) -> Rendezvous:
        """Where its ranks can meet."""

    def sweep(self) -> None:
        """End what outlived its rank; called after failures and at the end."""


class OneHost:
    """Ranks on this machine: a Unix socket in the pool's directory, and a store on the loopback address."""

    hosts_are_real = True
    shares_this_host = True

    def listen(self, directory: str, backlog: int) -> tuple[socket.socket, Any]:
        """In the directory, which only this user may enter; without a file where its path would be too long."""
        path = os.path.join(directory, "pool")
        address = path if len(os.fsencode(path)) < _PATH_LIMIT else f"\0{os.path.basename(directory)}"
        return _listening(socket.AF_UNIX, address, backlog)

    def rendezvous(self) -> Rendezvous:
        """Not to be reached from elsewhere."""
        return Rendezvous("127.0.0.1")


class Network:
    """Ranks that reach this machine by one of its addresses, on ports that the system chooses."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host

    def listen(self, directory: str, backlog: int) -> tuple[socket.socket, Any]:
        """On this machine's address only; the key keeps others out."""
        return _listening(socket.AF_INET, (self._host, 0), backlog)

    def rendezvous(self) -> Rendezvous:
        """On the same address."""
        return Rendezvous(self._host)


def _listening(family: socket.AddressFamily, address: Any, backlog: int) -> tuple[socket.socket, Any]:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.bind(address)
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener, listener.getsockname() if family == socket.AF_INET else address


def kill_with_family(pid: int, *, is_alive: bool) -> None:
    """End a rank server of this machine and what it started.

    Its family is looked for while it lives: what it had adopted belongs to somebody else the moment it is dead.
    """
    family = orphans.family_of(pid)
    if is_alive:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    orphans.kill_all(family)
