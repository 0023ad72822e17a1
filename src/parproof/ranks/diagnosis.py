"""From partial reports, journals and stacks to a failure that names the rank and the cause."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from parproof.ledger.agreement import disagreements
from parproof.ledger.rows import Row
from parproof.ranks.failure import RankProblem, exit_words
from parproof.ranks.protocol import Report


@dataclass
class Evidence:
    """What the pool holds when something went wrong."""

    world_size: int
    reports: Mapping[int, Report]
    deaths: Mapping[int, tuple[int | None, float]]
    journals: Mapping[int, list[Row]] = field(default_factory=dict)
    stacks: Mapping[int, str] = field(default_factory=dict)
    stderr: Mapping[int, str] = field(default_factory=dict)
    deadline_s: float = 0.0
    stopped_early: bool = False

    @property
    def silent(self) -> list[int]:
        """Ranks that neither reported nor died."""
        known = set(self.reports) | set(self.deaths)
        return [rank for rank in range(self.world_size) if rank not in known]


def problems(evidence: Evidence) -> list[RankProblem]:
    """Every rank's problem, the likely cause first.

    A rank that died or raised before the others is the cause; ranks that failed later mostly lost it as a peer.
    Among ranks that are all silent, the one that is not where the others wait is the cause.
    """
    found = [_death(evidence, rank) for rank in evidence.deaths]
    found += [_raised(rank, r) for rank, r in evidence.reports.items() if r.error and not r.error.is_skip]
    skipped = [rank for rank, r in evidence.reports.items() if r.error and r.error.is_skip]
    if len(skipped) < evidence.world_size:
        found += [_skipped(rank, evidence.reports[rank]) for rank in skipped]
    found.sort(key=lambda problem: problem.at_s)
    silent = _silent(evidence)
    return silent + found if not evidence.stopped_early else found + silent


def mismatch_text(evidence: Evidence) -> str:
    """What the ranks' own ledgers disagree about, as a paragraph; empty when they agree."""
    parts = disagreements({rank: rows for rank, rows in evidence.journals.items()})
    return "ledgers: " + "\n         ".join(str(part) for part in parts) if parts else ""


def _death(evidence: Evidence, rank: int) -> RankProblem:
    exitcode, at_s = evidence.deaths[rank]
    words = exit_words(exitcode) + " before it reported"
    detail = "\n".join(
        part
        for part in (_last_call(evidence, rank), evidence.stacks.get(rank, ""), evidence.stderr.get(rank, ""))
        if part
    )
    return RankProblem(rank, "died", words, detail, at_s)


def _raised(rank: int, report: Report) -> RankProblem:
    assert report.error is not None
    first = report.error.message.split("\n", 1)[0]
    return RankProblem(
        rank, "raised", f"{report.error.type_name}: {first}", report.error.traceback, report.ended_s
    )


def _skipped(rank: int, report: Report) -> RankProblem:
    assert report.error is not None
    text = f"skipped alone ({report.error.message}) while the others ran"
    return RankProblem(rank, "skipped_alone", text, "", report.ended_s)


def _silent(evidence: Evidence) -> list[RankProblem]:
    """Ranks outside the collective that the others wait in come first."""
    waiting = {rank: _waits_in_collective(evidence, rank) for rank in evidence.silent}
    found = []
    for rank in sorted(evidence.silent, key=lambda r: waiting[r]):
        doing = _last_call(evidence, rank) or "no communication call yet"
        state = "waits in" if waiting[rank] else "is outside any collective; last call"
        summary = f"did not report within {evidence.deadline_s:.1f} s: {state} {doing}"
        found.append(RankProblem(rank, "silent", summary, evidence.stacks.get(rank, "")))
    return found


def _last_call(evidence: Evidence, rank: int) -> str:
    rows = evidence.journals.get(rank) or []
    return f"call {len(rows) - 1}, {rows[-1].describe()}" if rows else ""


_WAIT_FRAME = re.compile(r"torch/distributed/(distributed_c10d|_functional_collectives|c10d_logger)\.py")


def _waits_in_collective(evidence: Evidence, rank: int) -> bool:
    """True when the innermost frames of the main thread are torch.distributed's."""
    stack = evidence.stacks.get(rank, "").split("Current thread")[-1]
    frames = re.findall(r'File "([^"]+)", line \d+ in', stack)
    return any(_WAIT_FRAME.search(frame) for frame in frames[:3])
