"""Wire bytes: what really left this rank, from the kernel's counters of its own TCP sockets. No torch here.

The ledger's rows hold what a program asked for; these counters hold what the transport made of it, headers
included. The two are columns of their own and are never mixed.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

# Places in Linux's struct tcp_info: notsent_bytes (4.6), bytes_sent and bytes_retrans (4.19).
_NOTSENT_AT, _SENT_AT, _INFO_BYTES = 144, 200, 216


@dataclass
class WireSample:
    """Bytes this rank handed to TCP between two moments; None with the reason where that cannot be told.

    rows   [first, end) of the ledger rows noted in between
    """

    sent_bytes: int | None = None
    rows: tuple[int, int] = (0, 0)
    not_measured: str = ""


@contextmanager
def measured_wire() -> Iterator[WireSample]:
    """Fill a sample on the way out. Calls must be complete inside (wait for asynchronous ones).

    Counts every TCP socket of the process; a process group made inside adds the hand-shake of its connections.
    Bytes are counted when they are handed to TCP, so that delayed acknowledgements do not matter.
    """
    sample = WireSample()
    before = tcp_sent_bytes()
    yield sample
    after = tcp_sent_bytes()
    if isinstance(before, str) or isinstance(after, str):
        sample.not_measured = before if isinstance(before, str) else str(after)
        return
    sample.sent_bytes = sum(sent - before.get(inode, 0) for inode, sent in after.items())


def tcp_sent_bytes() -> dict[str, int] | str:
    """Socket → bytes handed to TCP since it was opened, without retransmissions; or why it cannot be told."""
    if not sys.platform.startswith("linux"):
        return f"TCP_INFO byte counters need Linux, found {sys.platform}"
    found: dict[str, int] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            inode = os.readlink(f"/proc/self/fd/{name}")
            if not inode.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.family not in (socket.AF_INET, socket.AF_INET6) or one.type != socket.SOCK_STREAM:
                    continue
                info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except OSError:
            # Closed since it was listed.
            continue
        if len(info) < _INFO_BYTES:
            return f"TCP_INFO byte counters need Linux 4.19 or later, found {len(info)} bytes of tcp_info"
        sent, again = struct.unpack_from("QQ", info, _SENT_AT)
        found[inode] = sent - again + struct.unpack_from("I", info, _NOTSENT_AT)[0]
    return found
