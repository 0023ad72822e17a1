"""Processes that rank programs started: found through /proc and ended with their rank, or with the session.

A rank leads a session of its own and adopts its orphaned descendants, so killing what is below it is enough while
it lives. What a rank that died by itself leaves behind is told by a token in the environment it started with.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import NamedTuple

TOKEN_VARIABLE = "PARPROOF_SESSION"


class _Process(NamedTuple):
    pid: int
    state: str
    parent: int
    session: int


def family_of(pid: int) -> set[int]:
    """A rank, its session and its descendants, as far as they live."""
    family = {pid}
    processes = list(_processes())
    while True:
        more = {p.pid for p in processes if p.parent in family or p.session == pid} - family
        if not more:
            break
        family |= more
    return family & {p.pid for p in processes if p.state != "Z"}


def kill_all(pids: set[int]) -> None:
    """SIGKILL to each that is still there."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def kill_orphans(token: str) -> None:
    """SIGKILL every process whose environment carries the token and that no longer descends from this one."""
    mark = f"{TOKEN_VARIABLE}={token}".encode()
    processes = {p.pid: p for p in _processes()}
    for process in processes.values():
        if process.state == "Z" or _descends(process, os.getpid(), processes):
            continue
        with contextlib.suppress(OSError):
            with open(f"/proc/{process.pid}/environ", "rb") as file:
                marked = mark in file.read().split(b"\0")
            if marked:
                os.kill(process.pid, signal.SIGKILL)


def _descends(process: _Process, ancestor: int, processes: dict[int, _Process]) -> bool:
    walked: _Process | None = process
    while walked is not None and walked.pid != ancestor:
        walked = processes.get(walked.parent)
    return walked is not None


def state_of(pid: int) -> str:
    """The kernel's letter for what a process does (R, S, D, T, Z); empty when it is not known."""
    process = _read(pid)
    return process.state if process else ""


def living_children() -> list[str]:
    """Processes this one started and that still run, by name and id."""
    if _has_no_child():
        return []
    me = os.getpid()
    children = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{me}/task"):
            with open(f"/proc/{me}/task/{task}/children") as file:
                children += [int(pid) for pid in file.read().split()]
    return [f"process {pid} ({_name(pid)})" for pid in children if state_of(pid) not in ("", "Z")]


def _has_no_child() -> bool:
    """One question to the kernel, before the files of a dozen threads are read; nobody's exit is taken from whoever
    waits for it."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    except (AttributeError, OSError):  # not on this system
        return False
    return False


def _processes() -> Iterator[_Process]:
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            process = _read(int(name)) if name.isdigit() else None
            if process is not None:
                yield process


def _read(pid: int) -> _Process | None:
    try:
        with open(f"/proc/{pid}/stat") as file:
            # The name is in brackets and may hold anything; what follows the last bracket does not.
            state, parent, _, session = file.read().rpartition(")")[2].split()[:4]
    except (OSError, ValueError):
        return None
    return _Process(pid, state, int(parent), int(session))


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return "?"
