"""What a run of a rank program gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from parproof.ledger.rows import Row
from parproof.ledger.sequence import COUNTED_BACKENDS, gap
from parproof.ranks.protocol import GroupState


@dataclass(frozen=True)
class RankReport:
    """One rank's side of a run."""

    rank: int
    value: Any
    rows: tuple[Row, ...]
    groups: tuple[GroupState, ...]
    started_s: float
    ended_s: float
    stdout: str = ""
    stderr: str = ""
    clock_samples: tuple[tuple[str, float], ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """All ranks' reports, in rank order, and the facts of the run (`observation`)."""

    program: str
    reports: tuple[RankReport, ...]
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


def named(values: Sequence[Any]) -> list[tuple[str, Any]]:
    """Pairs («rank 0 of 2», value)."""
    return [(f"rank {rank} of {len(values)}", value) for rank, value in enumerate(values)]
