"""Where ranks meet to make their default group: a file on one host, a store that the pool holds on a network."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


class Rendezvous(Protocol):
    """Names a fresh meeting point for every new group, so that no group can meet an older one."""

    def fresh(self, number: int) -> str:
        """An address for `open_store`."""

    def close(self) -> None:
        """Release what it holds."""


class FileRendezvous:
    """One file a group in the pool's private directory: no port is taken."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._last = ""

    def fresh(self, number: int) -> str:
        """The file of the group before goes: every rank has left that group when it makes a new one."""
        with contextlib.suppress(OSError):
            os.unlink(self._last)
        self._last = os.path.join(self._directory, f"store{number}")
        return f"file:{self._last}"

    def close(self) -> None:
        """The directory goes with the pool."""


class TcpRendezvous:
    """A store in the pool's process, on a port that the system chose and that stays open: no race for a port."""

    def __init__(self, host: str) -> None:
        from torch._C._distributed_c10d import TCPStore

        self._host = host
        self._store: Any = TCPStore(host, 0, is_master=True, wait_for_workers=False)

    def fresh(self, number: int) -> str:
        """A prefix of its own for every group."""
        return f"tcp:{self._host}:{self._store.port}:{number}"

    def close(self) -> None:
        """Stop listening."""
        self._store = None


def open_store(address: str, world_size: int) -> Store:
    """The store behind an address, in a rank."""
    from torch._C._distributed_c10d import FileStore, PrefixStore, TCPStore

    kind, _, rest = address.partition(":")
    if kind == "file":
        return FileStore(rest, world_size)
    host, port, prefix = rest.rsplit(":", 2)
    return PrefixStore(prefix, TCPStore(host, int(port), is_master=False))
