"""What the pool and a rank server say to each other, over one authenticated connection a rank.

Messages are plain pickles sent as bytes. torch's shared-memory reductions are not used on purpose:
a tensor that travels by file descriptor outlives a killed rank in /dev/shm.
"""

from __future__ import annotations

import pickle
import socket
import struct
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from parproof.ledger.rows import Row


@dataclass(frozen=True)
class Hello:
    """First message of a rank server: who connected.

    machine   identity of the running kernel: the same for containers that share a machine, whatever they are called
    """

    slot: int
    pid: int
    hostname: str
    machine: str


@dataclass(frozen=True)
class Assignment:
    """The identity a rank server takes on, once, before its first job.

    visible_devices   value of CUDA_VISIBLE_DEVICES for this rank, or None to leave it as it is
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    host: str
    backend: str
    device: str
    directory: str
    group_timeout_s: float
    visible_devices: str | None = None


@dataclass(frozen=True)
class Surroundings:
    """What a rank program may expect to find as in the pytest process, where both are on one machine."""

    working_directory: str
    import_path: tuple[str, ...]
    environment: dict[str, str]


@dataclass(frozen=True)
class Job:
    """One rank program to run. `rendezvous` names a fresh store when the default group must be made anew."""

    number: int
    program: ProgramRef
    arguments: bytes
    rendezvous: str | None
    ledger: bool
    debug_detail: bool
    surroundings: Surroundings | None = None


@dataclass(frozen=True)
class AllReported:
    """Every rank has reported, and well. Before that, a peer may still be joining a group that this rank has left."""


@dataclass(frozen=True)
class ProgramRef:
    """A rank program by name: importable module, or the file that holds it."""

    module: str
    qualname: str
    path: str | None

    def __str__(self) -> str:
        return f"{self.module}:{self.qualname}"


@dataclass(frozen=True)
class ErrorInfo:
    """An exception as text, since the class may not exist on the other side."""

    type_name: str
    message: str
    traceback: str
    is_skip: bool = False


@dataclass(frozen=True)
class GroupState:
    """What a rank knows of one process group at the end of a job."""

    name: str
    members: tuple[int, ...]
    sequence: int
    sequence_expected: int


@dataclass(frozen=True)
class Report:
    """What a rank says when a job ended. `value` is a pickle, so a bad value cannot break the channel.

    leftovers   threads and processes that the program started and that still run
    """

    job: int
    rank: int
    value: bytes | None
    error: ErrorInfo | None
    rows: tuple[Row, ...]
    groups: tuple[GroupState, ...]
    in_flight: tuple[str, ...]
    group_reusable: bool
    started_s: float
    ended_s: float
    clock_samples: tuple[tuple[str, float], ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    leftovers: tuple[str, ...] = ()


def send(connection: Connection, message: object) -> None:
    """Send one message."""
    connection.send_bytes(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))


def receive(connection: Connection) -> Any:
    """Wait for one message. Raises EOFError when the other side is gone."""
    return pickle.loads(connection.recv_bytes())


def tune(connection: Connection, *, stall_s: float) -> None:
    """Small messages leave at once, and one that stalls half-way for `stall_s` is an OSError (0: never)."""
    with socket.socket(fileno=connection.fileno()) as sock:
        try:
            limit = struct.pack("ll", int(stall_s), int(stall_s % 1 * 1e6))
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                sock.setsockopt(socket.SOL_SOCKET, option, limit)
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        finally:
            sock.detach()
