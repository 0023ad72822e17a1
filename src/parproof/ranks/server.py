"""A rank server: a process that takes on one rank and runs rank programs until its pool is gone."""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing.connection import Client, Connection
from types import ModuleType
from typing import Any

from parproof.errors import UsageError
from parproof.ranks import protocol
from parproof.ranks.files import RankFiles
from parproof.ranks.protocol import Assignment, ErrorInfo, Job, ProgramRef, Report

_PR_SET_PDEATHSIG = 1


def main(slot: int, address: Any, authkey: bytes) -> None:
    """Connect to the pool, take the identity it assigns, serve. Any launcher only has to call this."""
    os.setsid()
    _die_with_parent()
    # The pool ends its ranks by process group, so a rank may start processes (data loaders) as any program may.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    connection = Client(address, authkey=authkey)
    protocol.send(connection, protocol.Hello(slot, os.getpid(), socket.gethostname()))
    RankServer(connection, protocol.receive(connection)).serve()


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class RankServer:
    """Owns the process: its files, its process group, its journal."""

    def __init__(self, connection: Connection, assignment: Assignment) -> None:
        from parproof.ranks.group import DefaultGroup

        self._connection = connection
        self._me = assignment
        self._files = RankFiles(assignment.directory, assignment.rank)
        self._journal_fd = self._files.take_over_this_process()
        self._group = DefaultGroup(assignment)
        self._modules: dict[str, tuple[int, ModuleType]] = {}
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
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)
            report = self._run(job)
            protocol.send(self._connection, report)
            if report.error is not None:
                self._group.tear_down()

    def _run(self, job: Job) -> Report:
        from parproof.ledger.recorder import Recorder

        os.ftruncate(self._journal_fd, 0)
        recorder = Recorder(self._journal_fd) if job.ledger else None
        started = time.monotonic()
        value: bytes | None = None
        error: ErrorInfo | None = None
        context = None
        try:
            program = self._resolve(job.program)
            context = self._group.context(job, recorder)
            arguments, keywords = pickle.loads(job.arguments)
            with recorder or nullcontext():
                result = program(context, *arguments, **keywords)
            value = _pickled(result, job.program)
        except BaseException as exception:
            error = _error_info(exception)
        ended = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
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
        )

    def _resolve(self, reference: ProgramRef) -> Callable[..., Any]:
        found: Any = self._module(reference)
        for part in reference.qualname.split("."):
            found = getattr(found, part)
        return found  # type: ignore[no-any-return]

    def _module(self, reference: ProgramRef) -> ModuleType:
        """Import by name where the name leads to the same file; else load the file (test modules)."""
        if reference.path is None:
            return importlib.import_module(reference.module)
        if reference.module == "__main__" and "__mp_main__" in sys.modules:
            # multiprocessing has imported the script under this name, without running its main part.
            return sys.modules["__mp_main__"]
        changed = os.stat(reference.path).st_mtime_ns
        known = self._modules.get(reference.path)
        if known and known[0] == changed:
            return known[1]
        module = None if known else _importable(reference)
        if module is None:
            module = _load_file(reference)
        self._modules[reference.path] = (changed, module)
        return module


def _importable(reference: ProgramRef) -> ModuleType | None:
    try:
        spec = importlib.util.find_spec(reference.module)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or reference.path is None:
        return None
    same = os.path.realpath(spec.origin) == os.path.realpath(reference.path)
    return importlib.import_module(reference.module) if same else None


def _load_file(reference: ProgramRef) -> ModuleType:
    spec = importlib.util.spec_from_file_location(reference.module, str(reference.path))
    if spec is None or spec.loader is None:
        raise UsageError(f"cannot load the module of rank program {reference}", where=str(reference.path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[reference.module] = module
    spec.loader.exec_module(module)
    return module


def _pickled(value: Any, program: ProgramRef) -> bytes:
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as exception:
        raise UsageError(
            f"rank program returned {type(value).__name__}, which cannot be pickled: {exception}",
            expected="plain data (numbers, strings, tensors, lists, dicts)",
            where=str(program),
            next_step="return .detach() tensors or numbers instead of live objects",
        ) from exception


def _error_info(exception: BaseException) -> ErrorInfo:
    """pytest and unittest skips are told by name, so that neither is imported here."""
    skip = any(kind.__name__ in ("Skipped", "SkipTest", "RankSkip") for kind in type(exception).__mro__)
    return ErrorInfo(
        type_name=type(exception).__name__,
        message=str(exception),
        traceback="".join(traceback.format_exception(exception)),
        is_skip=skip,
    )
