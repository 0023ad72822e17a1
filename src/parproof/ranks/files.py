"""The files of one rank in its pool's private directory: journal, stacks, output.

They are files, not messages, because they must be readable after the rank was killed. Each holds one job only.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import sys
import threading
from dataclasses import dataclass

from parproof.ledger.rows import Row
from parproof.ranks import joining

STACK_SIGNALS = (signal.SIGUSR1, getattr(signal, "SIGRTMAX", signal.SIGUSR2 + 3) - 3)
"""A rank answers each with its stacks; the second is for programs that took the first for themselves."""

_TAIL_BYTES = 64 * 1024


@dataclass(frozen=True)
class Journal:
    """The calls of a job as far as it got, and the id of the rank's main thread in stack dumps.

    joining   the call of init_process_group that the rank is in, or that failed
    """

    rows: tuple[Row, ...] = ()
    main_thread: int = 0
    joining: joining.Join | None = None


class RankFiles:
    """Paths, and how the pool reads them."""

    def __init__(self, directory: str, rank: int) -> None:
        stem = os.path.join(directory, f"rank{rank}")
        self.journal = stem + ".journal"
        self.stacks = stem + ".stacks"
        self.stdout = stem + ".out"
        self.stderr = stem + ".err"

    def read_stacks(self) -> str:
        """What faulthandler wrote: on a signal, or when the process received a fatal one."""
        return _read_tail(self.stacks)

    def read_journal(self, job: int) -> Journal:
        """The calls of a job, also those of a rank that is dead. A torn last line is dropped.

        Empty when the rank has not begun the job: what lies there then belongs to the job before.
        """
        first, *lines = _read_tail(self.journal, limit=None).splitlines() or [""]
        try:
            header = json.loads(first)
        except ValueError:
            return Journal()
        if header.get("job") != job:
            return Journal()
        rows, join = [], None
        for line in lines:
            try:
                if joining.is_note(line):
                    join = joining.read(line)
                else:
                    rows.append(Row.from_json(line))
            except (ValueError, KeyError):
                break
        return Journal(tuple(rows), header["main_thread"], join)

    def journal_size(self) -> int:
        """Bytes written so far: while it does not grow, the rank makes no new calls."""
        try:
            return os.stat(self.journal).st_size
        except FileNotFoundError:
            return 0

    def read_output(self) -> tuple[str, str]:
        """(stdout, stderr) of the last job, or the end of them when they are long."""
        return _read_tail(self.stdout), _read_tail(self.stderr)


class OwnFiles:
    """The same files inside the rank, which writes to them."""

    def __init__(self, paths: RankFiles) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.journal_fd = os.open(paths.journal, flags, 0o600)
        self._stacks = open(paths.stacks, "a")  # noqa: SIM115 - lives as long as the process
        self._output = {1: os.open(paths.stdout, flags, 0o600), 2: os.open(paths.stderr, flags, 0o600)}

    def begin(self, job: int) -> None:
        """Take over this process's output and stack dumps, whatever the job before did to them; start empty."""
        self.flush()
        for fd, own in self._output.items():
            os.ftruncate(own, 0)
            os.dup2(own, fd)
        sys.stdout = open(1, "w", closefd=False, buffering=1)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
        os.ftruncate(self._stacks.fileno(), 0)
        faulthandler.enable(self._stacks)
        for number in STACK_SIGNALS:
            # A handler that the program put in its place stays there unless ours is taken out first.
            faulthandler.unregister(number)
            faulthandler.register(number, self._stacks, all_threads=True, chain=False)
        os.ftruncate(self.journal_fd, 0)
        header = {"job": job, "main_thread": threading.main_thread().ident}
        os.write(self.journal_fd, json.dumps(header).encode() + b"\n")

    @staticmethod
    def flush() -> None:
        """A program may have closed or replaced the streams."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()


def _read_tail(path: str, limit: int | None = _TAIL_BYTES) -> str:
    try:
        with open(path, "rb") as file:
            if limit is not None:
                file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
