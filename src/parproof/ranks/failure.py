"""Failures of ranks, as errors that name the rank and the cause."""

from __future__ import annotations

import signal
from dataclasses import dataclass


@dataclass(frozen=True)
class RankProblem:
    """What went wrong with one rank.

    kind  raised | died | silent | skipped_alone | mismatch | leftover
    """

    rank: int
    kind: str
    summary: str
    detail: str = ""
    at_s: float = 0.0


class RankFailure(AssertionError):
    """At least one rank did not do its part. The first problem is the most likely cause."""

    def __init__(self, program: str, world_size: int, problems: list[RankProblem], context: str = "") -> None:
        self.program = program
        self.world_size = world_size
        self.problems = problems
        self.context = context
        super().__init__(self._text())

    def _text(self) -> str:
        first, *others = self.problems
        lines = [f"rank {first.rank} of {self.world_size}: {first.summary} [{self.program}]"]
        lines += [f"  rank {p.rank} of {self.world_size}: {p.summary}" for p in others]
        for problem in self.problems:
            if problem.detail:
                lines += ["", f"--- rank {problem.rank} of {self.world_size} ---", problem.detail.rstrip()]
        if self.context:
            lines += ["", self.context]
        return "\n".join(lines)

    def of(self, rank: int) -> list[RankProblem]:
        """The problems of one rank."""
        return [problem for problem in self.problems if problem.rank == rank]

    @property
    def kinds(self) -> dict[int, str]:
        """Rank → kind of its first problem."""
        found: dict[int, str] = {}
        for problem in self.problems:
            found.setdefault(problem.rank, problem.kind)
        return found


class RankSkip(Exception):
    """Every rank asked to skip, for this reason. Raise it in a rank program to ask."""


def exit_words(exitcode: int | None) -> str:
    """How a process ended, in words."""
    if exitcode is None:
        return "lost its connection"
    if exitcode < 0:
        try:
            return f"was killed by {signal.Signals(-exitcode).name}"
        except ValueError:
            return f"was killed by signal {-exitcode}"
    return f"exited with code {exitcode}"
