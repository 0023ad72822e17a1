"""How ranks come together in a default group of their own making, and what it means when they do not.

A program may leave the pool's group and call init_process_group again. When that ends in a timeout, torch tells each
rank which key of a store it missed; what is wrong is what the ranks asked for, so each notes that before it asks.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from parproof.ranks.failure import RankProblem, rank_words

_NOTE = '{"join":'


@dataclass(frozen=True)
class Join:
    """One call of init_process_group: the number and the world size that the rank gave."""

    rank: int
    world_size: int

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world_size}"


@contextmanager
def noted(journal_fd: int) -> Iterator[None]:
    """While inside, a call of torch.distributed.init_process_group is noted in the journal, and its good end too.

    The journal, since a rank that waits for the others reports nothing. Not seen: a name for the function that a
    module took before the program ran (`from torch.distributed import init_process_group`).
    """
    import torch.distributed as dist

    original = dist.init_process_group
    hooked = _hooked(original, journal_fd)
    places: tuple[Any, ...] = (dist, dist.distributed_c10d)
    for place in places:
        place.init_process_group = hooked
    try:
        yield
    finally:
        for place in places:
            if place.init_process_group is hooked:
                place.init_process_group = original


def _hooked(original: Callable[..., Any], journal_fd: int) -> Callable[..., Any]:
    @functools.wraps(original)
    def init_process_group(*arguments: Any, **keywords: Any) -> Any:
        os.write(journal_fd, _line(_asked(original, arguments, keywords)))
        found = original(*arguments, **keywords)
        os.write(journal_fd, _line(None))
        return found

    return init_process_group


def _asked(original: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[int]:
    """What is not given comes from the environment, as torch has it."""
    try:
        given = inspect.signature(original).bind_partial(*arguments, **keywords).arguments
    except TypeError:  # torch will say what is wrong with the arguments
        given = {}
    found = []
    for name in ("rank", "world_size"):
        value = given.get(name, -1)
        from_outside = os.environ.get(name.upper(), "")
        found.append(int(from_outside) if value in (-1, None) and from_outside.isdigit() else value)
    return found


def _line(join: list[int] | None) -> bytes:
    return _NOTE.encode() + json.dumps(join).encode() + b"}\n"


def is_note(line: str) -> bool:
    """Is this line of a journal one of ours?"""
    return line.startswith(_NOTE)


def read(line: str) -> Join | None:
    """The call that begins with this note; None for its good end. Errors: ValueError for a torn line."""
    asked = json.loads(line)["join"]
    return Join(*asked) if asked else None


def misjoined(joins: Mapping[int, Join], world_size: int) -> list[RankProblem]:
    """Ranks that are inside a join, or failed in it, although they could never have met: what each asked for."""
    words = _what_is_wrong(joins, world_size)
    return [
        RankProblem(rank, "mismatch", f"joined as {join}: {words}", aspect="rendezvous")
        for rank, join in sorted(joins.items())
        if words
    ]


def _what_is_wrong(joins: Mapping[int, Join], world_size: int) -> str:
    by_size = _sorted_by(joins, lambda join: join.world_size)
    if len(by_size) > 1:
        parts = [f"{rank_words(ranks)} with world size {size}" for size, ranks in by_size.items()]
        return f"world size differs: {', '.join(parts)}"
    by_number = _sorted_by(joins, lambda join: join.rank)
    twice = [(number, ranks) for number, ranks in by_number.items() if len(ranks) > 1]
    if twice:
        size = next(iter(by_size))
        return "; ".join(
            f"{rank_words(ranks)} {'both' if len(ranks) == 2 else 'all'} joined as rank {number} of {size}"
            for number, ranks in twice
        )
    # A rank that has not joined yet may be the one that is missing, and then nothing is wrong with these.
    if len(joins) == world_size and set(by_size) != {world_size}:
        return f"joined with world size {next(iter(by_size))} by {world_size} ranks"
    return ""


def _sorted_by(joins: Mapping[int, Join], key: Callable[[Join], int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for rank, join in sorted(joins.items()):
        found.setdefault(key(join), []).append(rank)
    return found
