"""Start rank servers and wait until each has connected and said who it is."""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import threading
import time
from multiprocessing.connection import Client, Connection, Listener, wait
from typing import Any

from parproof.ranks import protocol
from parproof.ranks.failure import RankFailure, RankProblem, exit_words
from parproof.ranks.launch import Launcher, RankProcess


def accept_ranks(
    launcher: Launcher, world_size: int, directory: str, timeout_s: float
) -> tuple[list[RankProcess], list[Connection], list[str]]:
    """(processes, connections, host names as the ranks saw them), by slot. The channel is a Unix socket with a fresh key, so no port is taken."""
    authkey = secrets.token_bytes(32)
    address = os.path.join(directory, "pool")
    arrivals: queue.Queue[tuple[protocol.Hello, Connection]] = queue.Queue()
    with Listener(address, "AF_UNIX", backlog=world_size, authkey=authkey) as listener:
        acceptor = threading.Thread(target=_accept, args=(listener, world_size, arrivals), daemon=True)
        acceptor.start()
        processes = [launcher.start(slot, address, authkey) for slot in range(world_size)]
        try:
            connections, hostnames = _wait_for(processes, arrivals, timeout_s)
        except BaseException:
            for process in processes:
                process.kill()
            raise
        finally:
            _release(acceptor, address, authkey)
    return processes, connections, hostnames


def _accept(listener: Listener, count: int, arrivals: Any) -> None:
    for _ in range(count):
        with contextlib.suppress(Exception):
            connection = listener.accept()
            arrivals.put((protocol.receive(connection), connection))


def _wait_for(
    processes: list[RankProcess], arrivals: Any, timeout_s: float
) -> tuple[list[Connection], list[str]]:
    connections: dict[int, Connection] = {}
    hostnames: dict[int, str] = {}
    end = time.monotonic() + timeout_s
    while len(connections) < len(processes):
        try:
            hello, connection = arrivals.get(timeout=0.05)
            connections[hello.slot] = connection
            hostnames[hello.slot] = hello.hostname
            continue
        except queue.Empty:
            pass
        missing = [slot for slot in range(len(processes)) if slot not in connections]
        dead = [slot for slot in missing if wait([processes[slot].sentinel], timeout=0)]
        if dead or time.monotonic() > end:
            problems = [
                RankProblem(slot, "died", f"{exit_words(processes[slot].exitcode())} while it was starting")
                for slot in dead
            ] or [
                RankProblem(slot, "silent", f"did not connect within {timeout_s:.0f} s") for slot in missing
            ]
            raise RankFailure("start of the rank pool", len(processes), problems)
    slots = range(len(processes))
    return [connections[slot] for slot in slots], [hostnames[slot] for slot in slots]


def _release(acceptor: threading.Thread, address: str, authkey: bytes) -> None:
    """An accept that still waits for a rank that never came is woken by connections of our own."""
    while acceptor.is_alive():
        with contextlib.suppress(Exception):
            Client(address, authkey=authkey).close()
        acceptor.join(0.05)
