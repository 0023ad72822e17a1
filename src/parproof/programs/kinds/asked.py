"""A kind of communication: how it is done, and what was asked for, written down by hand."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from parproof import torch_version
from parproof.ledger.rows import Row
from parproof.ranks.context import RankContext


@dataclass(frozen=True)
class Asked:
    """One call as it was asked for. `members` of None is the world."""

    op: str
    in_bytes: int
    out_bytes: int
    dtype: str = "float32"
    members: tuple[int, ...] | None = None
    reduce_op: str | None = None
    peer: int | None = None
    tag: int | None = None
    is_async: bool = False
    control: bool = False


@dataclass(frozen=True)
class Kind:
    """`do` runs on every rank; `asked(rank, world)` is what rank must be seen to do.

    ordered       False where the order is up to a schedule
    bookkeeping   True where sizes are those of pickles: control traffic only, at least one call
    since         the first release of torch that does it so, where 2.11 does not
    """

    name: str
    do: Callable[[RankContext], object]
    asked: Callable[[int, int], Sequence[Asked]]
    min_world: int = 2
    ordered: bool = True
    bookkeeping: bool = False
    since: str = "2.11"

    def differs(self, rows: Sequence[Row], rank: int, world: int) -> str:
        """How the rows of this kind's phase differ from what was asked for; empty when they do not."""
        observed = seen(rows, self.name, world)
        if self.bookkeeping:
            return "" if observed and all(call.control for call in observed) else f"{observed}"
        asked = list(self.asked(rank, world))
        if not self.ordered:
            observed, asked = sorted(observed, key=repr), sorted(asked, key=repr)
        return "" if observed == asked else f"observed {observed}, asked for {asked}"


def do_all(ctx: RankContext, family: str, only: str = "") -> None:
    """Every kind of a family, each in a phase of its own name."""
    for kind in kinds_of(family, ctx.world_size):
        if only in ("", kind.name):
            with ctx.phase(kind.name):
                kind.do(ctx)


def kinds_of(family: str, world: int) -> list[Kind]:
    """The kinds of a family that this world size and the installed torch can do."""
    table: list[Kind] = importlib.import_module(f"parproof.programs.kinds.{family}").KINDS
    return [kind for kind in table if world >= kind.min_world and not torch_version.before(kind.since)]


def seen(rows: Sequence[Row], phase: str, world: int) -> list[Asked]:
    """The rows of a phase in the words of the table."""
    return [
        Asked(
            row.op,
            row.in_bytes,
            row.out_bytes,
            row.dtype,
            None if row.members == tuple(range(world)) else row.members,
            row.reduce_op,
            row.peer,
            row.tag,
            row.is_async,
            row.control,
        )
        for row in rows
        if row.phase == phase
    ]
