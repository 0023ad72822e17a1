"""What a tensor's move to another layout sends, against the cost model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from parproof.checks.ledger import assert_ledger
from parproof.checks.provided import provided
from parproof.cost.tensor_moves import move_traffic
from parproof.cost.traffic import Traffic
from parproof.programs.tensor import Outcome
from parproof.subjects.protocol import SubjectRef
from parproof.workloads.layouts import Move, flat_line

if TYPE_CHECKING:
    from parproof.ranks.run import Run


def with_known_traffic(subject: SubjectRef, moves: Sequence[Move]) -> list[Move]:
    """The moves of which the cost model, and the subject, say what they send."""
    known = [move for move in moves if len(_axes_at_work(move)) <= 1]
    return provided(subject, known, lambda move: (capability(move),), ".traffic")


def assert_traffic(run: Run, moves: Sequence[Move], subject: SubjectRef) -> None:
    """Forward and backward of each move of which it is known what it sends, on every rank."""
    __tracebackhide__ = True
    judged = with_known_traffic(subject, moves)
    for number, move in enumerate(moves):
        if move not in judged:
            continue
        outcomes = [result[number] for result in run.results]
        for rank, rows in enumerate(run.ledgers):
            mine = [row for row in rows if row.phase.startswith(f"{move.name}/")]
            lines = [replace(x, phase=f"{move.name}/{x.phase}") for x in predicted(outcomes, move, rank)]
            assert_ledger(mine, lines, where=f"{run.where(rank)}: {move.name}")


def capability(move: Move) -> str:
    """How a subject's `lacks` names a kind of move; «.traffic» behind it asks for what it sends."""
    words = {"S": "split", "R": "common", "P": "summand"}
    axis = next(iter(_axes_at_work(move)), 0)
    before, after = (words[layout.placements[axis][0]] for layout in (move.source, move.target))
    return f"tensor.redistribute.{before}_to_{after}"


def predicted(outcomes: Sequence[Outcome], move: Move, rank: int) -> list[Traffic]:
    """What this rank sends, by the cost model, for parts as long as these."""
    mesh, whole = move.source.mesh, move.whole()
    axis = next(iter(_axes_at_work(move)), 0)
    line = flat_line(rank, mesh, (axis,))
    ends = [(outcomes[r].input_gradient, outcomes[r].output) for r in line]
    given = [tuple(a.local.shape) for a, _ in ends if a is not None]
    wanted = [tuple(b.local.shape) for _, b in ends if b is not None]
    placements = move.source.placements[axis], move.target.placements[axis]
    return move_traffic(*placements, move.shape, given, wanted, line.index(rank), whole.element_size())


def _axes_at_work(move: Move) -> list[int]:
    """Where several axes change what they hold, the subject may choose which goes first, and that counts."""
    placements = zip(move.source.mesh, move.source.placements, move.target.placements, strict=True)
    return [axis for axis, (size, before, after) in enumerate(placements) if size > 1 and before != after]
