"""From partial reports, journals and stacks to problems that name the rank and the cause, the likely cause first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from parproof.ledger.agreement import Disagreement, disagreements
from parproof.ledger.rows import COLLECTIVES, Row
from parproof.ranks import joining
from parproof.ranks.failure import RankProblem, exit_words, rank_words
from parproof.ranks.files import Journal
from parproof.ranks.protocol import Report
from parproof.ranks.tracebacks import Stacks

_CONSEQUENCES = re.compile(
    r"[Cc]onnection (closed|reset|refused)|Timed out waiting|[Tt]imeout caused pair closure|Socket Timeout"
    r"|[Bb]roken pipe|failed to pass monitoredBarrier|EnforceNotMet|ncclRemoteError|NCCL communicator was aborted"
    r"|[Ww]atchdog caught collective operation timeout|Detected mismatch between collectives"
    r"|Process group has been aborted|DistStoreError|DistNetworkError"
)
_STDERR_LINES = 20
_LINE = 240


@dataclass
class Evidence:
    """What the pool holds when something went wrong. All times are the pool's own clock."""

    world_size: int
    reports: dict[int, Report] = field(default_factory=dict)
    deaths: dict[int, int | None] = field(default_factory=dict)
    arrived_s: dict[int, float] = field(default_factory=dict)
    silent: tuple[int, ...] = ()
    journals: dict[int, Journal] = field(default_factory=dict)
    stacks: dict[int, Stacks] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    stderr: dict[int, str] = field(default_factory=dict)
    waited_s: float = 0.0
    troubled: bool = False

    @property
    def is_complete(self) -> bool:
        """Every rank has reported, and no report is an error."""
        return len(self.reports) == self.world_size and not any(r.error for r in self.reports.values())

    @property
    def is_unanimous_skip(self) -> bool:
        """Every rank asked to skip."""
        return len(self.reports) == self.world_size and all(_is_skip(r) for r in self.reports.values())

    @property
    def skip_reason(self) -> str:
        """The reason of the first rank."""
        error = self.reports[0].error
        return error.message if error else ""

    @property
    def returned(self) -> list[int]:
        """Ranks whose program ended well."""
        return [rank for rank, report in self.reports.items() if report.error is None]

    def rows(self, rank: int) -> Sequence[Row]:
        """The calls of a rank: what it reported, or what its journal holds."""
        report = self.reports.get(rank)
        return report.rows if report else self.journals.get(rank, Journal()).rows

    def last_call(self, rank: int) -> str:
        """Its last call in words, or an empty text."""
        rows = self.rows(rank)
        return f"call {len(rows) - 1}, {rows[-1].describe()}" if rows else ""


def explain(evidence: Evidence) -> list[RankProblem]:
    """Every rank's problem. What a rank did by its own fault comes before what it lost through a peer.

    Order    joins that could never meet; own faults (died, raised, skipped alone) as they happened; calls that ranks
             made differently, or that a rank never joined; ranks that hang outside any call; failures through a peer; ranks that wait.
    """
    failed = [*evidence.deaths, *(r for r, report in evidence.reports.items() if report.error)]
    failed.sort(key=lambda rank: evidence.arrived_s.get(rank, 0.0))
    own = [_failure(evidence, rank) for rank in failed if not is_consequence(evidence, rank)]
    lost = [_failure(evidence, rank) for rank in failed if is_consequence(evidence, rank)]
    waiting = set(evidence.silent) | {problem.rank for problem in lost}
    differing = unlike_calls(evidence)
    missing = absent(evidence, waiting)
    silent = [_silent(evidence, rank) for rank in evidence.silent]
    silent.sort(key=lambda problem: problem.kind == "waits")
    hanging = [problem for problem in silent if problem.kind == "silent"]
    joins = {rank: join for rank, journal in evidence.journals.items() if (join := journal.joining)}
    unmet = joining.misjoined(joins, evidence.world_size)
    return _once([*unmet, *own, *differing, *missing, *hanging, *lost, *silent])


def is_consequence(evidence: Evidence, rank: int) -> bool:
    """Did this rank fail because a peer did, as far as its words tell?"""
    report = evidence.reports.get(rank)
    if report is not None:
        error = report.error
        return error is not None and not error.is_skip and bool(_CONSEQUENCES.search(error.message))
    return evidence.deaths.get(rank) == -6 and bool(_CONSEQUENCES.search(evidence.stderr.get(rank, "")))


def absent(evidence: Evidence, waiting: Iterable[int]) -> list[RankProblem]:
    """Ranks that never joined the last call of one that waits: they returned, or hang elsewhere."""
    found: dict[int, RankProblem] = {}
    waiters = set(waiting)
    for waiter in sorted(waiters):
        rows = evidence.rows(waiter)
        if not rows:
            continue
        call = rows[-1]
        for rank in _partners(call, waiter):
            done = rank in evidence.returned
            if rank in found or not (done or rank in evidence.silent):
                continue
            if _joined(call, rank, waiter, evidence.rows(rank)) < _joined(call, waiter, waiter, rows):
                what = f"{call.describe()}, in which rank {waiter} waits"
                words = f"returned without joining {what}" if done else f"has not joined {what}"
                found[rank] = RankProblem(rank, "absent", words + _place(evidence, rank))
    return [found[rank] for rank in sorted(found)]


def _partners(call: Row, rank: int) -> list[int]:
    """Who must take part for this call to end."""
    if call.op in COLLECTIVES:
        return [member for member in call.members if member != rank]
    return [call.peer] if call.peer is not None and call.peer >= 0 else []


def _joined(call: Row, rank: int, waiter: int, rows: Sequence[Row]) -> int:
    """How many calls of the same channel (a group's collectives, or one direction of a pair) a rank made."""
    same_group = [row for row in rows if (row.group, row.members) == (call.group, call.members)]
    if call.op in COLLECTIVES:
        return sum(row.op in COLLECTIVES for row in same_group)
    other = {"send": "recv", "recv": "send"}[call.op]
    op, peer = (call.op, call.peer) if rank == waiter else (other, waiter)
    return sum(
        row.op == op and row.peer in (peer, -1) and (row.tag or 0) == (call.tag or 0) for row in same_group
    )


_SIMPLY_UNFINISHED = ("participation", "send count", "recv count")


def unlike_calls(evidence: Evidence) -> list[RankProblem]:
    """Calls that ranks made differently; that one has not made a call yet is no difference while it runs."""
    ledgers = {rank: rows for rank in range(evidence.world_size) if (rows := evidence.rows(rank))}
    return [problem for problem in mismatches(ledgers) if problem.aspect not in _SIMPLY_UNFINISHED]


def mismatches(ledgers: Mapping[int, Sequence[Row]]) -> list[RankProblem]:
    """What ranks did differently in the same call: the ranks that differ from most come first."""
    return [problem for part in disagreements(ledgers) for problem in _of_one(part)]


def _of_one(part: Disagreement) -> list[RankProblem]:
    by_call: dict[str, list[int]] = {}
    for rank, call in part.calls.items():
        by_call.setdefault(call.partition(" at ")[0], []).append(rank)
    rarest_first = sorted(by_call.values(), key=len)
    where = f"call {part.index} of group {part.group}"
    return [
        RankProblem(
            rank, "mismatch", f"{part.aspect} differs at {where}: {part.calls[rank]}", aspect=part.aspect
        )
        for ranks in rarest_first
        for rank in sorted(ranks)
    ]


def _failure(evidence: Evidence, rank: int) -> RankProblem:
    report = evidence.reports.get(rank)
    if report is None:
        return _death(evidence, rank)
    error = report.error
    assert error is not None
    if error.is_skip:
        skipped = {r for r, other in evidence.reports.items() if _is_skip(other)}
        ran = rank_words(set(range(evidence.world_size)) - skipped)
        return RankProblem(rank, "skipped_alone", f"skipped alone ({_short(error.message)}) while {ran} ran")
    summary = f"{error.type_name}: {_short(error.message)}" if error.message else error.type_name
    last = evidence.last_call(rank)
    if last and is_consequence(evidence, rank):
        return RankProblem(rank, "raised", f"{summary}, in {last}")
    return RankProblem(rank, "raised", summary, error.traceback)


_NOISE = re.compile(r"^\[[^\]]*\.(cc|cpp|h):\d+\] |\. This is typically caused.*")


def _short(message: str) -> str:
    """The first line, without the places and the advice that backends add."""
    line = _NOISE.sub("", message.split("\n", 1)[0])
    return line if len(line) <= _LINE else f"{line[:_LINE]} …"


def _death(evidence: Evidence, rank: int) -> RankProblem:
    last = evidence.last_call(rank)
    summary = exit_words(evidence.deaths[rank]) + " before it reported" + (f"; last {last}" if last else "")
    tail = "\n".join(evidence.stderr.get(rank, "").rstrip().splitlines()[-_STDERR_LINES:])
    stacks = str(evidence.stacks.get(rank, ""))
    return RankProblem(rank, "died", summary, "\n".join(part for part in (stacks, tail) if part))


def _silent(evidence: Evidence, rank: int) -> RankProblem:
    """kind «waits» when the rank is where ranks wait for each other, «silent» when it is anywhere else."""
    stacks = evidence.stacks.get(rank, Stacks())
    last = evidence.last_call(rank)
    waits = stacks.seems_to_wait
    if waits:
        doing = f"waits in {last or 'torch.distributed'}"
    else:
        doing = f"last {last}" if last else "no communication call yet"
    summary = f"did not report within {evidence.waited_s:.1f} s{_place(evidence, rank)}; {doing}"
    return RankProblem(rank, "waits" if waits else "silent", summary, str(stacks))


def _place(evidence: Evidence, rank: int) -> str:
    """Where a silent rank is, as far as is known."""
    if rank not in evidence.silent:
        return ""
    place = evidence.stacks.get(rank, Stacks()).place
    if place is not None:
        return f"; is at {place}"
    state = {"T": "it is stopped", "D": "it is in an uninterruptible system call"}.get(
        evidence.states.get(rank, "")
    )
    return f"; {state or 'its stacks could not be had'}"


def _once(problems: list[RankProblem]) -> list[RankProblem]:
    """The first problem of a rank names its cause; later ones only lend their stacks or traceback."""
    kept: dict[int, RankProblem] = {}
    for problem in problems:
        first = kept.get(problem.rank)
        if first is None:
            kept[problem.rank] = problem
        elif problem.kind == "died":
            kept[problem.rank] = replace(
                first, summary=f"{first.summary}; {problem.summary}", detail=problem.detail
            )
        elif problem.detail and not first.detail:
            kept[problem.rank] = replace(first, detail=problem.detail)
    return list(kept.values())


def _is_skip(report: Report) -> bool:
    return report.error is not None and report.error.is_skip
