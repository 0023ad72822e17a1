"""A rank server: a process that takes on one rank and runs rank programs until its pool is gone.

Any launcher only has to get it running: `main` in a forked process, or, wherever Python and torch are,

    python -m parproof.ranks.server --address HOST:PORT --slot N < key

The key (hexadecimal) comes on standard input, or in the variable PARPROOF_AUTHKEY, never on the command line.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from parproof.ranks import joining, protocol, tracebacks
from parproof.ranks.files import OwnFiles, RankFiles
from parproof.ranks.hygiene import Hygiene, reset_torch
from parproof.ranks.programs import ProgramFinder
from parproof.ranks.protocol import Assignment, ErrorInfo, Job, Report
from parproof.ranks.results import pickled_result

KEY_VARIABLE = "PARPROOF_AUTHKEY"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(slot: int, address: Any, authkey: bytes, *, parent: int | None = None) -> None:
    """Connect to the pool, take the identity it assigns, serve."""
    with contextlib.suppress(PermissionError):
        os.setsid()
    _die_with(os.getppid() if parent is None else parent)
    _let_the_forkserver_end()
    # The pool ends what its ranks start, so a rank may start processes (data loaders) as any program may.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    connection = Client(address, authkey=authkey)
    protocol.tune(connection, stall_s=0)
    protocol.send(connection, protocol.Hello(slot, os.getpid(), socket.gethostname(), _machine()))
    RankServer(connection, protocol.receive(connection)).serve()


def _machine() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return socket.gethostname()


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it died before we asked to be told


def _let_the_forkserver_end() -> None:
    """A rank holds one end of the pipe by which the forkserver sees that nobody needs it. A rank that hangs must
    not keep it, or both would outlive a pytest process that was killed."""
    import multiprocessing.forkserver

    own: Any = multiprocessing.forkserver._forkserver
    if own._forkserver_alive_fd is not None:
        os.close(own._forkserver_alive_fd)
        own._forkserver_alive_fd = None


_SKIP_GRACE_S = 0.3


class RankServer:
    """Owns the process: its files, its process group, its journal."""

    def __init__(self, connection: Connection, assignment: Assignment) -> None:
        from parproof.ranks.group import DefaultGroup

        self._connection = connection
        self._me = assignment
        self._files = OwnFiles(RankFiles(assignment.directory, assignment.rank))
        self._group = DefaultGroup(assignment)
        self._programs = ProgramFinder()
        self._hygiene = Hygiene()
        gc.freeze()

    def serve(self) -> None:
        """Run jobs until the pool says stop (None) or is gone."""
        while True:
            try:
                job = protocol.receive(self._connection)
            except (EOFError, OSError):
                job = None
            if job is None:
                # No destructors: a group whose peers are gone may abort the process at exit.
                self._files.flush()
                os._exit(0)
            if isinstance(job, protocol.AllReported):
                self._group.close_subgroups()
                continue
            report = self._run(job)
            self._send(report)
            if report.error is not None:
                if report.error.is_skip:
                    # Usually all ranks skip at once, and a slow one may still be joining the group.
                    self._connection.poll(_SKIP_GRACE_S)
                self._group.tear_down()

    def _send(self, report: Report) -> None:
        """What a program put into ctx.facts may not be plain data; its report must arrive all the same."""
        try:
            protocol.send(self._connection, report)
        except (pickle.PicklingError, TypeError, AttributeError) as exception:
            protocol.send(self._connection, replace(report, error=_error_info(exception), facts={}))

    def _run(self, job: Job) -> Report:
        from parproof.ledger.recorder import Recorder, step_aside

        self._hygiene.prepare(job.surroundings)
        self._files.begin(job.number)
        recorder = Recorder(self._files.journal_fd) if job.ledger else None
        if recorder is None:
            step_aside()
        started = time.monotonic()
        value: bytes | None = None
        error: ErrorInfo | None = None
        context = None
        try:
            reset_torch(self._group.num_threads)
            program = self._programs.find(job.program)
            context = self._group.context(job, recorder)
            arguments, keywords = pickle.loads(job.arguments)
            with joining.noted(self._files.journal_fd), recorder or nullcontext():
                result = program(context, *arguments, **keywords)
            self._group.finish_device_work()
            value = pickled_result(result, job.program)
        except BaseException as exception:
            error = _error_info(exception)
        ended = time.monotonic()
        self._files.flush()
        groups, in_flight, reusable = self._group.state_after(recorder, failed=error is not None)
        return Report(
            job=job.number,
            rank=self._me.rank,
            value=value,
            error=error,
            rows=tuple(recorder.rows) if recorder else (),
            groups=groups,
            in_flight=in_flight,
            group_reusable=reusable,
            started_s=started,
            ended_s=ended,
            clock_samples=tuple(context.clock_samples) if context else (),
            facts=context.facts if context else {},
            leftovers=self._hygiene.leftovers(),
        )


def _error_info(exception: BaseException) -> ErrorInfo:
    """pytest and unittest skips are told by name, so that neither is imported here.

    What a subject does not provide (Unsupported) is a skip too, when all ranks say so.
    """
    names = ("Skipped", "SkipTest", "RankSkip", "Unsupported")
    skip = any(kind.__name__ in names for kind in type(exception).__mro__)
    return ErrorInfo(
        type_name=type(exception).__name__,
        message=tracebacks.message_of(exception),
        traceback=tracebacks.traceback_of(exception),
        is_skip=skip,
    )


def _command_line(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m parproof.ranks.server", description="Serve one rank.")
    parser.add_argument("--address", required=True, help="HOST:PORT, or the path of a Unix socket")
    parser.add_argument("--slot", required=True, type=int, help="which place of the pool this rank takes")
    given = parser.parse_args(arguments)
    key = os.environ.pop(KEY_VARIABLE, "") or sys.stdin.readline()
    host, _, port = given.address.rpartition(":")
    address = (host, int(port)) if host and port.isdigit() else given.address
    main(given.slot, address, bytes.fromhex(key.strip()))


if __name__ == "__main__":
    _command_line()
