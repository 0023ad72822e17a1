"""The files of one rank in its pool's private directory: journal, stacks, output.

They are files, not messages, because they must be readable after the rank was killed.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys

from parproof.ledger.rows import Row

_TAIL_BYTES = 64 * 1024


class RankFiles:
    """Paths and readers; `take_over_this_process` is called inside the rank only."""

    def __init__(self, directory: str, rank: int) -> None:
        stem = os.path.join(directory, f"rank{rank}")
        self.journal = stem + ".journal"
        self.stacks = stem + ".stacks"
        self.stdout = stem + ".out"
        self.stderr = stem + ".err"

    def take_over_this_process(self) -> int:
        """Send this process's output and stack dumps to the files; returns the journal's descriptor."""
        for path, stream in ((self.stdout, sys.stdout), (self.stderr, sys.stderr)):
            stream.flush()
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(fd, 1 if path == self.stdout else 2)
            os.close(fd)
        sys.stdout = open(1, "w", closefd=False, buffering=1)  # noqa: SIM115 - lives as long as the process
        sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
        stacks = open(self.stacks, "w")  # noqa: SIM115
        faulthandler.enable(stacks)
        faulthandler.register(signal.SIGUSR1, stacks, all_threads=True, chain=False)
        return os.open(self.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def read_stacks(self) -> str:
        """What faulthandler wrote: on SIGUSR1, or when the process received a fatal signal."""
        return _read_tail(self.stacks)

    def read_journal(self) -> list[Row]:
        """The calls of the current job, also those of a rank that is dead. A torn last line is dropped."""
        rows = []
        for line in _read_tail(self.journal, limit=None).splitlines():
            try:
                rows.append(Row.from_json(line))
            except ValueError:
                break
        return rows

    def read_output(self, since: tuple[int, int] = (0, 0)) -> tuple[str, str]:
        """(stdout, stderr) written after the two offsets."""
        return _read_tail(self.stdout, since[0]), _read_tail(self.stderr, since[1])

    def output_sizes(self) -> tuple[int, int]:
        """Offsets to pass to read_output later."""
        return _size(self.stdout), _size(self.stderr)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _read_tail(path: str, start: int = 0, limit: int | None = _TAIL_BYTES) -> str:
    try:
        with open(path, "rb") as file:
            if limit is not None:
                start = max(start, _size(path) - limit)
            file.seek(start)
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
