"""What a run of a rank program gives back."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from parproof.ledger.rows import Row
from parproof.ledger.sequence import COUNTED_BACKENDS, gap
from parproof.ranks.failure import RankFailure, RankProblem
from parproof.ranks.protocol import GroupState, ProgramRef, Report


@dataclass(frozen=True)
class RankReport:
    """One rank's side of a run."""

    rank: int
    value: Any = field(repr=False)
    rows: tuple[Row, ...] = field(repr=False)
    groups: tuple[GroupState, ...] = field(repr=False)
    started_s: float
    ended_s: float
    stdout: str = ""
    stderr: str = ""
    clock_samples: tuple[tuple[str, float], ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """All ranks' reports, in rank order, and the facts of the run (`observation`).

    Its repr is short, because pytest prints it for every failed test that holds one.
    """

    program: str
    reports: tuple[RankReport, ...] = field(repr=False)
    observation: dict[str, Any]

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.reports)

    @property
    def results(self) -> list[Any]:
        """What each rank's program returned."""
        return [report.value for report in self.reports]

    @property
    def ledgers(self) -> list[tuple[Row, ...]]:
        """What each rank was seen to send."""
        return [report.rows for report in self.reports]

    @property
    def ledger_gaps(self) -> tuple[str, ...]:
        """Calls that a group counted and no ledger row explains, for groups alive at the end of the run."""
        return tuple(
            f"{self.where(report.rank)}: {missing}"
            for report in self.reports
            for state in report.groups
            if (missing := gap(state.name, state.sequence, state.sequence_expected))
        )

    @property
    def ledger_complete(self) -> bool | None:
        """Did the ledgers see every call? None where the backend's own count says nothing about it."""
        if self.observation.get("backend") not in COUNTED_BACKENDS or not self.observation.get(
            "ledger", True
        ):
            return None
        return not self.ledger_gaps

    def where(self, rank: int) -> str:
        """How failure texts name a rank."""
        return f"rank {rank} of {self.world_size}"


def run_of(
    program: ProgramRef, reports: list[Report], outputs: list[tuple[str, str]], observation: dict[str, Any]
) -> Run:
    """A Run from the ranks' reports. Raises RankFailure for a result that cannot be read back in this process."""
    made = tuple(
        RankReport(
            rank=report.rank,
            value=_value_of(program, report, len(reports)),
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
    )
    run = Run(str(program), made, observation)
    run.observation["ledger_complete"] = run.ledger_complete
    return run


def _value_of(program: ProgramRef, report: Report, world_size: int) -> Any:
    try:
        return pickle.loads(report.value or b"")
    except Exception as exception:
        summary = (
            f"its result cannot be read back: {type(exception).__name__}: {exception}; return plain data"
        )
        raise RankFailure(
            str(program), world_size, [RankProblem(report.rank, "raised", summary)]
        ) from exception


def named(values: Sequence[Any]) -> list[tuple[str, Any]]:
    """Pairs («rank 0 of 2», value)."""
    return [(f"rank {rank} of {len(values)}", value) for rank, value in enumerate(values)]
