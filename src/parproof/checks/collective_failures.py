"""A diagnosis is good when it names the cause and every rank that was affected, in time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from parproof.ranks.failure import RankFailure
from parproof.workloads.collective_accidents import DEADLINE_S, Accident

if TYPE_CHECKING:
    from parproof.ranks.pool import RankPool
    from parproof.ranks.run import Run

NOTICE_S = 5.0  # grace for the other ranks, and their stacks


class Held(Protocol):
    """Ranks with their pool."""

    pool: RankPool

    def run(self, program: Callable[..., Any], *arguments: Any) -> Run:
        """The run of this program."""
        ...


def failure_of(held: Held, program: Callable[..., Any], *arguments: Any) -> tuple[RankFailure, float]:
    """The failure of a run that has to fail, and the seconds it took: of the accident alone, on ranks that are there.

    Errors   AssertionError when it did not fail
    """
    __tracebackhide__ = True
    held.pool.start()  # the first ranks of a session load torch
    started = time.monotonic()
    try:
        held.run(program, *arguments)
    except RankFailure as failure:
        return failure, time.monotonic() - started
    raise AssertionError(f"{program.__name__}{arguments} ended without a failure")


def assert_diagnosed(failure: RankFailure, took_s: float, accident: Accident) -> None:
    """The text has the cause and a line or a ledger entry for each rank that took part, and it came in time."""
    __tracebackhide__ = True
    text = str(failure)
    if not re.search(accident.cause, text):
        raise AssertionError(f"the diagnosis does not say «{accident.cause}»: {text[:3000]}")
    world_size = accident.world_size
    limit_s = DEADLINE_S + NOTICE_S
    affected = [rank for rank in range(world_size) if rank or not accident.in_subgroup]
    unnamed = [rank for rank in affected if not re.search(rf"rank {rank}(:| of {world_size}\b)", text)]
    if unnamed:
        raise AssertionError(f"the diagnosis does not name ranks {unnamed}: {text[:3000]}")
    if took_s > limit_s:
        raise AssertionError(f"the diagnosis took {took_s:.1f} s, more than {limit_s:.1f} s")


def assert_each_rank_says(failure: RankFailure, took_s: float, accident: Accident) -> None:
    """The cause is in the words of every rank, not of the first alone; and they came in time."""
    __tracebackhide__ = True
    for rank in range(accident.world_size):
        said = " / ".join(problem.summary for problem in failure.of(rank))
        if not re.search(accident.cause, said):
            raise AssertionError(f"rank {rank} does not say «{accident.cause}», but: {said or 'nothing'}")
    assert_diagnosed(failure, took_s, accident)
