"""Failures of ranks, as errors that name the rank and the cause."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class RankProblem:
    """What went wrong with one rank.

    kind     raised | died | silent (hangs elsewhere) | waits (for others) | absent (never joined a call that
             others wait in) | skipped_alone | mismatch
    aspect   of a mismatch: operation, reduce op, root, dtype, form, shape, split, participation, message size, rendezvous …
    """

    rank: int
    kind: str
    summary: str
    detail: str = ""
    aspect: str = ""


class RankFailure(AssertionError):
    """At least one rank did not do its part. The first problem is the most likely cause."""

    def __init__(self, program: str, world_size: int, problems: list[RankProblem]) -> None:
        self.program = program
        self.world_size = world_size
        self.problems = problems
        super().__init__(program, world_size, problems)

    def __str__(self) -> str:
        first, *others = self.problems
        lines = [f"rank {first.rank} of {self.world_size}: {first.summary} [{self.program}]"]
        lines += [f"  rank {p.rank} of {self.world_size}: {p.summary}" for p in others]
        by_detail: dict[str, list[int]] = {}
        for problem in self.problems:
            if problem.detail.strip():
                by_detail.setdefault(problem.detail.rstrip(), []).append(problem.rank)
        for detail, ranks in by_detail.items():
            lines += ["", f"--- {rank_words(ranks)} of {self.world_size} ---", detail]
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


def rank_words(ranks: Iterable[int]) -> str:
    """«rank 1» or «ranks 0, 2»."""
    numbers = sorted(ranks)
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


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
