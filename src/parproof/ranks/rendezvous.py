"""Where ranks meet to make their groups: a store that the pool holds, which answers at once.

A file would need no port, but its readers look every 10 ms: a new group cost 10 to 20 ms more by it.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


class Rendezvous:
    """A store in the pool's process, on a port of `host` that the system chose and that stays open: no race.

    It listens on that one address only. Names a fresh meeting point for every new default group.
    """

    def __init__(self, host: str) -> None:
        from torch._C._distributed_c10d import TCPStore

        listener = socket.create_server((host, 0))
        port = listener.getsockname()[1]
        self._host = host
        self._store: Any = TCPStore(
            host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )

    def fresh(self, number: int) -> str:
        """An address for `open_store`, with a prefix that no earlier group had."""
        return f"{self._host}:{self._store.port}:{number}"

    def close(self) -> None:
        """Stop listening."""
        self._store = None


def open_store(address: str) -> Store:
    """The store behind an address, in a rank."""
    from torch._C._distributed_c10d import TCPStore

    host, port, prefix = address.rsplit(":", 2)
    return under(TCPStore(host, int(port), is_master=False), prefix)


def under(store: Store, prefix: str) -> Store:
    """The part of a store that has this prefix."""
    from torch._C._distributed_c10d import PrefixStore

    return PrefixStore(prefix, store)
