"""Wait for every rank's report, and gather what tells the cause when one does not come."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection, wait
from typing import Any

from parproof.ranks import orphans, protocol
from parproof.ranks.diagnosis import Evidence, absent, is_consequence, unlike_calls
from parproof.ranks.files import STACK_SIGNALS, RankFiles
from parproof.ranks.launch import RankProcess
from parproof.ranks.protocol import Job, Report
from parproof.ranks.tracebacks import read_stacks

AFTER_CAUSE_S = 0.3
"""How long the others may take once the cause is known: their reports add little."""
AFTER_CONSEQUENCE_S = 2.0
"""How long to look for the cause while only its consequences are known: a dying process may write a core first."""
PATIENCE_S = 2.0
"""How long a backend may take to speak for itself once the calls made so far prove that the run cannot end."""
STACKS_WAIT_S = 0.6
_DEAF = ("T", "t", "Z")  # stopped, traced or gone: no handler runs
_LOOK_EVERY_S = 0.1
_LOOK_OFTEN_S = (
    0.02  # where there is little patience: what proves a run dead proves it whenever it is looked at
)


class Collector:
    """One job's reports, deaths and remains.

    patience_s   do not wait for the deadline, only this long, once the calls made so far prove that the run cannot
                 end; None to wait for it all the same
    """

    def __init__(
        self,
        processes: list[RankProcess],
        connections: list[Connection],
        files: list[RankFiles],
        job: Job,
        patience_s: float | None,
    ) -> None:
        self._processes = processes
        self._connections = connections
        self._files = files
        self._job = job
        self._patience_s = patience_s
        self._look_every_s = min(_LOOK_EVERY_S, max(_LOOK_OFTEN_S, patience_s or 0.0))
        self._end = 0.0
        self._sizes: dict[int, int] = {}
        self._looked_at: dict[int, int] = {}
        self._evidence = Evidence(len(processes))

    def collect(self, end: float) -> Evidence:
        """Wait until all have reported or the deadline `end` (monotonic seconds) has passed."""
        found = self._evidence
        started = time.monotonic()
        self._end = end
        pending = set(range(len(self._processes)))
        while pending:
            ready = self._wait(pending)
            for rank in sorted(ready):
                self._take(rank)
                pending.discard(rank)
            now = time.monotonic()
            if now >= self._end:
                break
            if not ready and self._patience_s is not None and not found.troubled:
                self._look_for_deadlock(pending, self._patience_s)
        found.waited_s = time.monotonic() - started
        found.silent = tuple(sorted(pending))
        if not found.is_complete:
            self._remains()
        return found

    def _wait(self, pending: set[int]) -> set[int]:
        """Ranks that have something to say or have ended."""
        waiting: dict[Any, int] = {self._connections[rank]: rank for rank in pending}
        waiting |= {self._processes[rank].sentinel: rank for rank in pending}
        left = max(0.0, self._end - time.monotonic())
        return {waiting[item] for item in wait(list(waiting), timeout=min(left, self._look_every_s))}

    def _take(self, rank: int) -> None:
        found, now = self._evidence, time.monotonic()
        report = self._report_of(rank)
        found.arrived_s[rank] = now
        if report is None:
            wait([self._processes[rank].sentinel], timeout=0.5)
            found.deaths[rank] = self._processes[rank].exitcode()
            found.stderr[rank] = self._files[rank].read_output()[1]
        else:
            found.reports[rank] = report
        if report is None or report.error:
            patience = AFTER_CONSEQUENCE_S if is_consequence(found, rank) else AFTER_CAUSE_S
            self._end = min(self._end, now + patience)

    def _report_of(self, rank: int) -> Report | None:
        """The rank's report, or None when it is gone. A report sent just before death still counts."""
        connection = self._connections[rank]
        try:
            while connection.poll(0):
                report: Report = protocol.receive(connection)
                if report.job == self._job.number:
                    return report
        except (EOFError, OSError):
            return None
        return None

    def _look_for_deadlock(self, pending: set[int], patience_s: float) -> None:
        """When nothing moves: do the calls made so far already tell that this cannot end well?

        A rank that has returned never joins, and calls that differ never meet. The deadline is not waited for then,
        only long enough for a backend's own timeout to speak.
        """
        found = self._evidence
        sizes = {rank: self._files[rank].journal_size() for rank in sorted(pending)}
        moved, self._sizes = sizes != self._sizes, sizes
        if moved or self._looked_at == sizes:
            return
        self._looked_at = sizes
        found.journals = {rank: self._files[rank].read_journal(self._job.number) for rank in pending}
        if absent(found, pending) or unlike_calls(found):
            found.troubled = True
            self._end = min(self._end, time.monotonic() + patience_s)

    def _remains(self) -> None:
        """Journals first: a signal ends a sleep, and the rank may then go on to other calls."""
        found, job = self._evidence, self._job.number
        found.journals = {rank: file.read_journal(job) for rank, file in enumerate(self._files)}
        for number in STACK_SIGNALS:
            self._ask_for_stacks(number)
        for rank, file in enumerate(self._files):
            found.stacks[rank] = read_stacks(file.read_stacks(), found.journals[rank].main_thread)
            found.stderr[rank] = file.read_output()[1]

    def _ask_for_stacks(self, number: int) -> None:
        """Signal every silent rank that has not written its stacks, and wait until all of them are written."""
        asked = [rank for rank in self._evidence.silent if not self._files[rank].read_stacks()]
        for rank in asked:
            self._processes[rank].signal(number)
            self._evidence.states[rank] = orphans.state_of(self._processes[rank].pid)
        asked = [rank for rank in asked if self._evidence.states[rank] not in _DEAF]
        end = time.monotonic() + STACKS_WAIT_S
        before: list[int] = []
        while asked and time.monotonic() < end:
            sizes = [len(self._files[rank].read_stacks()) for rank in asked]
            if all(sizes) and sizes == before:
                return
            before = sizes
            time.sleep(0.02)
