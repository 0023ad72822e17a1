"""The rank pool: starts rank servers, runs rank programs on all of them, and lets no rank be silent."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from parproof.ledger.agreement import disagreements
from parproof.ranks import protocol
from parproof.ranks.collecting import PATIENCE_S, Collector
from parproof.ranks.diagnosis import explain, mismatches
from parproof.ranks.directory import PrivateDirectory
from parproof.ranks.failure import RankFailure, RankSkip, exit_words
from parproof.ranks.files import RankFiles
from parproof.ranks.gathering import accept_ranks
from parproof.ranks.launch import Launcher, RankProcess
from parproof.ranks.places import Places
from parproof.ranks.programs import program_reference
from parproof.ranks.protocol import Job, ProgramRef, Report, Surroundings
from parproof.ranks.rendezvous import Rendezvous
from parproof.ranks.results import pickled_arguments
from parproof.ranks.run import Run, run_of

START_LIMIT_S = 120.0
SLOW_START_S = 1.5


class RankPool:
    """`world_size` ranks, warm between runs, rebuilt after any failure.

    Cost      first start 0.1 s for 2 ranks after torch is loaded; a warm run about 1 ms plus the program.
    Errors    RankFailure when any rank raises, dies, skips alone, stays silent, or when the ranks' ledgers
              disagree; RankSkip when every rank asks for it; UsageError when the program cannot be found by name.

    num_starts   how often the ranks were started
    num_inits    how often their default group was made; a run that needs none of both re-used a clean group
    """

    def __init__(
        self,
        world_size: int,
        launcher: Launcher,
        *,
        backend: str = "gloo",
        device: str = "cpu",
        ranks_per_host: int | None = None,
        on_slow_start: Callable[[], None] = lambda: None,
    ) -> None:
        self.places = Places(world_size, ranks_per_host or world_size, device)
        self.world_size = world_size
        self.backend = backend
        self.num_starts = 0
        self.num_inits = 0
        self._launcher = launcher
        self._on_slow_start = on_slow_start
        self._processes: list[RankProcess] = []
        self._connections: list[Connection] = []
        self._hellos: list[protocol.Hello] = []
        self._directory: PrivateDirectory | None = None
        self._rendezvous: Rendezvous | None = None
        self._job_number = 0
        self._reusable_detail: bool | None = None
        self._last_program = ""
        self._losses: list[str] = []
        self._leftovers: tuple[str, ...] = ()

    # -- life ---------------------------------------------------------------------------------------------

    def start(self, limit_s: float = START_LIMIT_S) -> None:
        """Start the ranks, in at most `limit_s`; nothing to do when all of them run already."""
        if self._processes and not self._note_losses():
            return
        self.kill()
        self._directory = PrivateDirectory()
        path = self._directory.path
        try:
            self._rendezvous = self._launcher.rendezvous()
            self._processes, self._connections, self._hellos = accept_ranks(
                self._launcher,
                self.world_size,
                path,
                limit_s,
                _once_after(SLOW_START_S, self._on_slow_start),
            )
            for rank, connection in enumerate(self._connections):
                protocol.send(connection, self.places.assignment(rank, self.backend, path))
        except BaseException:
            self.kill()
            raise
        self.num_starts += 1

    def _note_losses(self) -> bool:
        """Ranks that ended although nobody asked them to; no test that runs now is to blame."""
        ready = wait([process.sentinel for process in self._processes], timeout=0)
        lost = [rank for rank, process in enumerate(self._processes) if process.sentinel in ready]
        for rank in lost:
            words = exit_words(self._processes[rank].exitcode())
            self._losses.append(
                f"rank {rank} of {self.world_size} {words} after {self._last_program} had ended"
            )
        return bool(lost)

    def take_losses(self) -> list[str]:
        """Ranks found dead between two runs since this was last asked, in words. They were replaced."""
        losses, self._losses = self._losses, []
        return losses

    def close(self) -> None:
        """Ask the ranks to end, then make sure of it."""
        if self._processes:
            self._note_losses()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                protocol.send(connection, None)
        end = time.monotonic() + 0.2
        waiting = [process.sentinel for process in self._processes]
        while waiting and time.monotonic() < end:
            ended = wait(waiting, timeout=max(0.0, end - time.monotonic()))
            waiting = [sentinel for sentinel in waiting if sentinel not in ended]
        self.kill()

    def kill(self) -> None:
        """End the ranks and all they started, at once; remove their files."""
        for process in self._processes:
            process.kill()
        for connection in self._connections:
            connection.close()
        self._processes, self._connections, self._hellos = [], [], []
        self._reusable_detail = None
        if self._rendezvous is not None:
            self._rendezvous.close()
            self._rendezvous = None
        if self._directory is not None:
            self._directory.remove()
            self._directory = None

    # -- running ------------------------------------------------------------------------------------------

    def run(
        self,
        program: Callable[..., Any],
        *arguments: Any,
        deadline_s: float = 60.0,
        patience_s: float = PATIENCE_S,
        ledger: bool = True,
        debug_detail: bool = False,
        allow_mismatch: bool = False,
        keywords: dict[str, Any] | None = None,
    ) -> Run:
        """Run `program(ctx, *arguments, **keywords)` on every rank and wait for every rank's report.

        It ends at the deadline; or `patience_s` after the ranks' own calls have proved that they never meet.
        """
        __tracebackhide__ = True
        reference = program_reference(program)
        payload = pickled_arguments(reference, arguments, keywords or {})
        self.start()
        end = time.monotonic() + deadline_s
        try:
            job = self._send(reference, payload, ledger=ledger, debug_detail=debug_detail)
            reports = self._reports(job, end, patience_s, allow_mismatch)
            return run_of(reference, reports, self._outputs(), self._observation(reports))
        except RankSkip:
            raise
        except BaseException:
            # Also when the pytest process itself is interrupted: ranks in the middle of a job are of no more use.
            self.kill()
            self._launcher.sweep()
            raise
        finally:
            self._last_program = str(reference)
            if self._leftovers:
                self.kill()
                self._launcher.sweep()

    def _reports(self, job: Job, end: float, patience_s: float, allow_mismatch: bool) -> list[Report]:
        __tracebackhide__ = True
        files = [RankFiles(self._path(), rank) for rank in range(self.world_size)]
        patience = None if allow_mismatch or not job.ledger else patience_s
        evidence = Collector(self._processes, self._connections, files, job, patience).collect(end)
        if evidence.is_unanimous_skip:
            raise RankSkip(evidence.skip_reason)
        if not evidence.is_complete:
            raise RankFailure(str(job.program), self.world_size, explain(evidence))
        reports = [evidence.reports[rank] for rank in range(self.world_size)]
        self._leftovers = tuple(left for report in reports for left in report.leftovers)
        self._reusable_detail = job.debug_detail if _is_clean(reports, self.backend) else None
        if self._reusable_detail is not None and any(len(report.groups) > 1 for report in reports):
            self._tell(protocol.AllReported())
        if not allow_mismatch and (found := mismatches({r.rank: r.rows for r in reports})):
            raise RankFailure(str(job.program), self.world_size, found)
        return reports

    def _send(self, reference: ProgramRef, payload: bytes, *, ledger: bool, debug_detail: bool) -> Job:
        self._leftovers = ()
        self._job_number += 1
        address = None
        if self._reusable_detail != debug_detail:
            assert self._rendezvous is not None
            address = self._rendezvous.fresh(self._job_number)
            self.num_inits += 1
        self._reusable_detail = None
        surroundings = _surroundings() if self._launcher.shares_this_host else None
        job = Job(self._job_number, reference, payload, address, ledger, debug_detail, surroundings)
        self._tell(job)
        return job

    def _tell(self, message: object) -> None:
        for connection in self._connections:
            # A rank that dies just now shows up as a death, with its exit code.
            with contextlib.suppress(OSError):
                protocol.send(connection, message)

    def _path(self) -> str:
        assert self._directory is not None
        return self._directory.path

    def _outputs(self) -> list[tuple[str, str]]:
        return [RankFiles(self._path(), rank).read_output() for rank in range(self.world_size)]

    def placement(self) -> dict[str, Any]:
        """Which processes the ranks are, and where; known as soon as they are started.

        Hosts are real when the launcher says so and the ranks' own words do not contradict it: different names
        on one machine are containers.
        """
        hellos = self._hellos
        fewer_machines = len({h.machine for h in hellos}) < len({h.hostname for h in hellos})
        emulated = self.places.hosts_are_emulated or not self._launcher.hosts_are_real or fewer_machines
        return {
            "launcher": self._launcher.name,
            "backend": self.backend,
            "world_size": self.world_size,
            "ranks": [
                self.places.facts(rank) | {"pid": hello.pid, "hostname": hello.hostname}
                for rank, hello in enumerate(hellos)
            ],
            "host_kind": "emulated" if emulated else "real",
        }

    def _observation(self, reports: list[Report]) -> dict[str, Any]:
        """The facts of the run from which an evidence level may be computed."""
        return self.placement() | {
            "num_reports": len(reports),
            "ledger": all(s.sequence_expected >= 0 for report in reports for s in report.groups),
            "calls_seen": sum(len(report.rows) for report in reports),
            "leftovers": list(self._leftovers),
        }


def _is_clean(reports: list[Report], backend: str) -> bool:
    """May the next run use the same group? Only if nothing is in flight and the ledgers balance."""
    from parproof.ledger.sequence import COUNTED_BACKENDS

    # Counts may differ between ranks (messages are counted where they are sent and received): the ledgers tell.
    seen_all = backend not in COUNTED_BACKENDS or all(
        s.sequence == s.sequence_expected for report in reports for s in report.groups
    )
    return (
        all(report.group_reusable and not report.leftovers for report in reports)
        and seen_all
        and not disagreements({report.rank: report.rows for report in reports})
    )


def _surroundings() -> Surroundings | None:
    try:
        return Surroundings(os.getcwd(), tuple(sys.path), dict(os.environ))
    except FileNotFoundError:  # somebody removed the working directory
        return Surroundings("/", tuple(sys.path), dict(os.environ))


def _once_after(seconds: float, call: Callable[[], None]) -> Callable[[], None]:
    """A function to call often, which passes the call on once, when the time is up."""
    end = time.monotonic() + seconds
    done = False

    def tick() -> None:
        nonlocal done
        if not done and time.monotonic() >= end:
            done = True
            call()

    return tick
