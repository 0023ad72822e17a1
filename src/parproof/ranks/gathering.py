"""Start rank servers and wait until each has connected, proved that it knows the key, and said who it is."""

from __future__ import annotations

import contextlib
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge, wait
from typing import Any

from parproof.ranks import protocol
from parproof.ranks.failure import RankFailure, RankProblem, exit_words
from parproof.ranks.launch import Launcher, RankProcess

HANDSHAKE_S = 5.0
STALL_S = 20.0

_Arrivals = queue.SimpleQueue[tuple[protocol.Hello, Connection]]


def accept_ranks(
    launcher: Launcher, world_size: int, directory: str, timeout_s: float, waiting: Callable[[], None]
) -> tuple[list[RankProcess], list[Connection], list[protocol.Hello]]:
    """(processes, connections, who they said they are), by slot. `waiting` is called now and then while nothing happens.

    Each caller is heard in a thread of its own: one that does not know the key, or says nothing, takes no rank's
    place and holds nobody up.
    """
    authkey = secrets.token_bytes(32)
    listener, address = launcher.listen(directory, world_size)
    arrivals: _Arrivals = queue.SimpleQueue()
    processes: list[RankProcess] = []
    seats: dict[int, tuple[protocol.Hello, Connection]] = {}
    try:
        for slot in range(world_size):
            processes.append(launcher.start(slot, address, authkey))
        end = time.monotonic() + timeout_s
        while len(seats) < world_size:
            missing = [slot for slot in range(world_size) if slot not in seats]
            _hear(listener, [processes[slot].sentinel for slot in missing], authkey, arrivals)
            _seat(arrivals, seats, world_size)
            _check_start(processes, [slot for slot in missing if slot not in seats], end, timeout_s)
            waiting()
    except BaseException:
        for process in processes:
            process.kill()
        for _, connection in seats.values():
            connection.close()
        raise
    finally:
        listener.close()
    hellos, connections = zip(*(seats[slot] for slot in range(world_size)), strict=True)
    return processes, list(connections), list(hellos)


def _hear(listener: socket.socket, sentinels: list[int], authkey: bytes, arrivals: _Arrivals) -> None:
    """Give whoever calls a thread of its own."""
    ready = wait([listener, *sentinels], timeout=0.005 if arrivals.empty() else 0)
    if listener in ready:
        caller, _ = listener.accept()
        thread = threading.Thread(target=_handshake, args=(caller, authkey, arrivals), daemon=True)
        thread.start()


def _handshake(caller: socket.socket, authkey: bytes, arrivals: _Arrivals) -> None:
    connection = Connection(caller.detach())
    try:
        protocol.tune(connection, stall_s=HANDSHAKE_S)
        deliver_challenge(connection, authkey)
        answer_challenge(connection, authkey)
        hello = protocol.receive(connection)
        protocol.tune(connection, stall_s=STALL_S)
    except Exception:
        connection.close()
    else:
        arrivals.put((hello, connection))


def _seat(arrivals: _Arrivals, seats: dict[int, tuple[protocol.Hello, Connection]], world_size: int) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            hello, connection = arrivals.get_nowait()
            if hello.slot in seats or not 0 <= hello.slot < world_size:
                connection.close()
            else:
                seats[hello.slot] = hello, connection


def _check_start(processes: list[RankProcess], missing: list[int], end: float, timeout_s: float) -> None:
    sentinels: dict[Any, int] = {processes[slot].sentinel: slot for slot in missing}
    dead = sorted(sentinels[s] for s in wait(list(sentinels), timeout=0)) if sentinels else []
    problems = [
        RankProblem(slot, "died", f"{exit_words(processes[slot].exitcode())} while it was starting")
        for slot in dead
    ]
    if missing and time.monotonic() > end:
        problems += [
            RankProblem(slot, "silent", f"did not connect within {timeout_s:.0f} s")
            for slot in missing
            if slot not in dead
        ]
    if problems:
        raise RankFailure("start of the rank pool", len(processes), problems)
