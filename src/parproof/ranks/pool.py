"""The rank pool: starts rank servers, runs rank programs on all of them, and lets no rank be silent."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from parproof.errors import UsageError
from parproof.ledger.agreement import disagreements
from parproof.ranks import diagnosis, protocol
from parproof.ranks.directory import PrivateDirectory
from parproof.ranks.failure import RankFailure, RankProblem, RankSkip
from parproof.ranks.files import RankFiles
from parproof.ranks.gathering import accept_ranks
from parproof.ranks.launch import Launcher, RankProcess
from parproof.ranks.protocol import Assignment, Job, ProgramRef, Report
from parproof.ranks.run import RankReport, Run

GRACE_S = 2.0
STACKS_WAIT_S = 1.0
SLOW_START_S = 120.0


class RankPool:
    """`world_size` ranks, warm between runs, rebuilt after any failure.

    Cost      first start 0.1 s for 2 ranks after torch is loaded; a warm run about 1 ms plus the program.
    Errors    RankFailure when any rank raises, dies, skips alone, stays silent, or when the ranks' ledgers
              disagree; UsageError when the program cannot be found by name.
    """

    def __init__(
        self,
        world_size: int,
        launcher: Launcher,
        *,
        backend: str = "gloo",
        device: str = "cpu",
        ranks_per_host: int | None = None,
    ) -> None:
        if world_size < 1:
            raise UsageError(f"world size {world_size}", expected="at least 1 rank", where="RankPool")
        self.world_size = world_size
        self.backend = backend
        self.device = device
        self._launcher = launcher
        self._per_host = ranks_per_host or world_size
        self._processes: list[RankProcess] = []
        self._connections: list[Connection] = []
        self._hostnames: list[str] = []
        self._directory: PrivateDirectory | None = None
        self._job_number = 0
        self._group_is_clean = False
        self._group_has_detail = False
        self.num_starts = 0

    # -- life ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the ranks; nothing to do when they run already."""
        if self._processes:
            return
        self._directory = PrivateDirectory()
        try:
            self._processes, self._connections, self._hostnames = accept_ranks(
                self._launcher, self.world_size, self._directory.path, SLOW_START_S
            )
            for rank, connection in enumerate(self._connections):
                protocol.send(connection, self._assignment(rank))
        except BaseException:
            self.kill()
            raise
        self._group_is_clean = False
        self.num_starts += 1

    def close(self) -> None:
        """Ask the ranks to end, then make sure of it."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                protocol.send(connection, None)
        if self._processes:
            wait([process.sentinel for process in self._processes], timeout=0.2)
        self.kill()

    def kill(self) -> None:
        """End the ranks and all they started, at once; remove their files."""
        for process in self._processes:
            process.kill()
        for connection in self._connections:
            connection.close()
        self._processes, self._connections = [], []
        if self._directory is not None:
            self._directory.remove()
            self._directory = None

    def _assignment(self, rank: int) -> Assignment:
        host = rank // self._per_host
        assert self._directory is not None
        return Assignment(
            rank=rank,
            world_size=self.world_size,
            local_rank=rank % self._per_host,
            local_world_size=min(self._per_host, self.world_size - host * self._per_host),
            host=f"host{host}",
            backend=self.backend,
            device=self.device,
            directory=self._directory.path,
            group_timeout_s=1800.0,
        )

    # -- running ------------------------------------------------------------------------------------------

    def run(
        self,
        program: Callable[..., Any],
        *arguments: Any,
        deadline_s: float = 60.0,
        ledger: bool = True,
        debug_detail: bool = False,
        allow_mismatch: bool = False,
        keywords: dict[str, Any] | None = None,
    ) -> Run:
        """Run `program(ctx, *arguments, **keywords)` on every rank and wait for every rank's report."""
        __tracebackhide__ = True
        reference = program_reference(program)
        payload = pickle.dumps((arguments, keywords or {}), protocol=pickle.HIGHEST_PROTOCOL)
        self.start()
        job = self._job(reference, payload, ledger=ledger, debug_detail=debug_detail)
        files = [RankFiles(self._path(), rank) for rank in range(self.world_size)]
        offsets = [file.output_sizes() for file in files]
        self._group_is_clean = False
        evidence = self._collect(job, deadline_s)
        if evidence.silent or evidence.deaths or any(r.error for r in evidence.reports.values()):
            self._fail(reference, evidence, files)
        reports = [evidence.reports[rank] for rank in range(self.world_size)]
        self._group_is_clean = _is_clean(reports)
        self._group_has_detail = debug_detail
        if not allow_mismatch:
            self._check_agreement(reference, reports)
        outputs = [file.read_output(since) for file, since in zip(files, offsets, strict=True)]
        return self._run_of(reference, reports, outputs)

    def _job(self, reference: ProgramRef, payload: bytes, *, ledger: bool, debug_detail: bool) -> Job:
        self._job_number += 1
        reuse = self._group_is_clean and self._group_has_detail == debug_detail
        rendezvous = None if reuse else os.path.join(self._path(), f"store{self._job_number}")
        job = Job(self._job_number, reference, payload, rendezvous, ledger, debug_detail)
        for connection in self._connections:
            # A rank that died between two runs shows up as a death below, with its exit code.
            with contextlib.suppress(OSError):
                protocol.send(connection, job)
        return job

    def _path(self) -> str:
        assert self._directory is not None
        return self._directory.path

    def _collect(self, job: Job, deadline_s: float) -> diagnosis.Evidence:
        """Wait for all; after the first trouble only for GRACE_S more."""
        reports: dict[int, Report] = {}
        deaths: dict[int, tuple[int | None, float]] = {}
        end = time.monotonic() + deadline_s
        stopped_early = False
        pending = set(range(self.world_size))
        while pending:
            waiting = {self._connections[rank]: rank for rank in pending}
            waiting |= {self._processes[rank].sentinel: rank for rank in pending}
            ready = wait(list(waiting), timeout=max(0.0, end - time.monotonic()))
            if not ready:
                break
            for rank in sorted({waiting[item] for item in ready}):
                report = self._report_of(rank, job.number)
                if report is None:
                    deaths[rank] = (self._exitcode(rank), time.monotonic())
                else:
                    reports[rank] = report
                pending.discard(rank)
                if (report is None or report.error) and not stopped_early:
                    stopped_early = True
                    end = min(end, time.monotonic() + GRACE_S)
        return diagnosis.Evidence(
            self.world_size, reports, deaths, deadline_s=deadline_s, stopped_early=stopped_early
        )

    def _report_of(self, rank: int, number: int) -> Report | None:
        """The rank's report, or None when it is gone. A report sent just before death still counts."""
        connection = self._connections[rank]
        try:
            while connection.poll(0):
                report: Report = protocol.receive(connection)
                if report.job == number:
                    return report
        except (EOFError, OSError):
            return None
        return None

    def _exitcode(self, rank: int) -> int | None:
        wait([self._processes[rank].sentinel], timeout=0.5)
        return self._processes[rank].exitcode()

    def _fail(self, reference: ProgramRef, evidence: diagnosis.Evidence, files: list[RankFiles]) -> None:
        """Collect what the ranks left behind, end them, and raise."""
        __tracebackhide__ = True
        if evidence.silent:
            self._dump_stacks(files)
        evidence.journals = {rank: file.read_journal() for rank, file in enumerate(files)}
        evidence.stacks = {rank: file.read_stacks() for rank, file in enumerate(files)}
        evidence.stderr = {rank: file.read_output()[1] for rank, file in enumerate(files)}
        errors = [report.error for report in evidence.reports.values()]
        self.kill()
        if len(errors) == self.world_size and all(error and error.is_skip for error in errors):
            assert errors[0] is not None
            raise RankSkip(errors[0].message)
        found = diagnosis.problems(evidence)
        raise RankFailure(str(reference), self.world_size, found, diagnosis.mismatch_text(evidence))

    def _dump_stacks(self, files: list[RankFiles]) -> None:
        for process in self._processes:
            process.signal(signal.SIGUSR1)
        end = time.monotonic() + STACKS_WAIT_S
        before = None
        while time.monotonic() < end:
            sizes = [len(file.read_stacks()) for file in files]
            if all(sizes) and sizes == before:
                return
            before = sizes
            time.sleep(0.02)

    def _check_agreement(self, reference: ProgramRef, reports: list[Report]) -> None:
        __tracebackhide__ = True
        parts = disagreements({report.rank: report.rows for report in reports})
        if not parts:
            return
        found = [
            RankProblem(rank, "mismatch", f"{part.aspect} differs: {call}")
            for part in parts
            for rank, call in sorted(part.calls.items())
        ]
        raise RankFailure(str(reference), self.world_size, found, "\n".join(str(part) for part in parts))

    def _run_of(self, reference: ProgramRef, reports: list[Report], outputs: list[tuple[str, str]]) -> Run:
        made = [
            RankReport(
                rank=report.rank,
                value=pickle.loads(report.value or b""),
                rows=report.rows,
                groups=report.groups,
                started_s=report.started_s,
                ended_s=report.ended_s,
                stdout=out,
                stderr=err,
                clock_samples=report.clock_samples,
                facts=report.facts,
            )
            for report, (out, err) in zip(reports, outputs, strict=True)
        ]
        run = Run(str(reference), tuple(made), self._observation(reports))
        run.observation["ledger_complete"] = run.ledger_complete
        return run

    def _observation(self, reports: list[Report]) -> dict[str, Any]:
        """The facts of the run from which an evidence level may be computed."""
        return {
            "launcher": self._launcher.name,
            "backend": self.backend,
            "world_size": self.world_size,
            "ranks": [
                {
                    "rank": rank,
                    "local_rank": rank % self._per_host,
                    "pid": self._processes[rank].pid,
                    "host": f"host{rank // self._per_host}",
                    "hostname": self._hostnames[rank],
                    "device": self.device
                    if self.device == "cpu"
                    else f"{self.device}:{rank % self._per_host}",
                }
                for rank in range(self.world_size)
            ],
            "host_kind": "real" if self._per_host >= self.world_size else "emulated",
            "num_reports": len(reports),
            "ledger": all(s.sequence_expected >= 0 for report in reports for s in report.groups),
            "calls_seen": sum(len(report.rows) for report in reports),
        }


def _is_clean(reports: list[Report]) -> bool:
    """May the next run use the same group? Only if nothing is in flight and the ledgers balance."""
    rows = {report.rank: report.rows for report in reports}
    sequences = {tuple(state.sequence for state in report.groups) for report in reports}
    seen_all = all(s.sequence == s.sequence_expected for report in reports for s in report.groups)
    return (
        all(report.group_reusable for report in reports)
        and len(sequences) <= 1
        and seen_all
        and not disagreements(rows)
    )


def program_reference(program: Callable[..., Any]) -> ProgramRef:
    """Name a rank program so that another process can find it."""
    qualname = getattr(program, "__qualname__", "")
    module = getattr(program, "__module__", "")
    if not module or not qualname or "<" in qualname:
        raise UsageError(
            f"{program!r} cannot be found by name in another process",
            expected="a plain function at the top level of a module: def program(ctx, *args)",
            where="rank program",
            next_step="move it to module level and pass what it closes over as arguments",
        )
    path = getattr(sys.modules.get(module), "__file__", None)
    return ProgramRef(module, qualname, os.path.abspath(path) if path else None)
