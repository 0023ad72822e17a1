"""In which order each rank works: one list of events per rank for every schedule with a canonical order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from parproof.cost.pipeline import (
    BACKWARD,
    FORWARD,
    INPUT,
    V_SHAPED,
    WEIGHT,
    Event,
    check_sizes,
)
from parproof.cost.pipeline_v import units
from parproof.errors import InvalidPlan

Order = list[Event]


def orders(schedule: str, num_ranks: int, num_micro: int, stages_per_rank: int = 1) -> list[Order]:
    """The order of every rank. Errors: InvalidPlan for counts < 1, and for rounds that do not come out even."""
    check_sizes(num_ranks, num_micro, stages_per_rank)
    if schedule not in _MAKERS:
        raise InvalidPlan(f"no canonical order for {schedule!r}", expected=f"one of {', '.join(_MAKERS)}")
    if stages_per_rank > 1 and schedule in ("fill_drain", "one_f_one_b"):
        raise InvalidPlan(f"{stages_per_rank} stages per rank", expected="1", where=schedule)
    if stages_per_rank != 2 and schedule in V_SHAPED:
        raise InvalidPlan(f"{stages_per_rank} stages per rank", expected="2", where=schedule)
    return [_MAKERS[schedule](num_ranks, num_micro, stages_per_rank, rank) for rank in range(num_ranks)]


def _fill_drain(p: int, m: int, v: int, rank: int) -> Order:
    """All forwards, then all backwards."""
    return [Event(kind, rank, i) for kind in (FORWARD, BACKWARD) for i in range(m)]


def _one_f_one_b(p: int, m: int, v: int, rank: int) -> Order:
    """p − s forwards to start with, then a backward makes room for each forward."""
    warmup = min(m, p - rank)
    order = [Event(FORWARD, rank, i) for i in range(warmup)]
    for i in range(m):
        order.append(Event(BACKWARD, rank, i))
        if i + warmup < m:
            order.append(Event(FORWARD, rank, i + warmup))
    return order


def _breadth_first(p: int, m: int, v: int, rank: int) -> Order:
    """All micro-batches through one stage before the next; backward is the mirror image."""
    stages = range(rank, p * v, p)
    forward = [Event(FORWARD, stage, i) for stage in stages for i in range(m)]
    return forward + [Event(BACKWARD, e.stage, e.micro) for e in reversed(forward)]


def _interleaved(p: int, m: int, v: int, rank: int) -> Order:
    """Depth first: a round of micro-batches through one stage, the same round through the next, and so on."""
    per_round = micro_per_round(p, m)
    warmup = min((v - 1) * per_round + 2 * (p - 1 - rank), v * m)
    forwards, backwards = _rounds(p, m, v, rank, per_round)
    order = [next(forwards) for _ in range(warmup)]
    for event in forwards:
        order += [event, next(backwards)]
    return order + list(backwards)


def _zero_bubble(p: int, m: int, v: int, rank: int) -> Order:
    """Interleaved with a shorter start and split backwards; rank s puts its weight gradients off by s."""
    per_round = micro_per_round(p, m)
    warmup = min((v - 1) * per_round + (p - 1 - rank), v * m)
    forwards, backwards = _rounds(p, m, v, rank, per_round)
    order, put_off = [next(forwards) for _ in range(warmup)], []
    for position in range(v * m):
        order += [event for event in [next(forwards, None)] if event is not None]
        event = next(backwards)
        order.append(event._replace(kind=INPUT))
        put_off.append(event._replace(kind=WEIGHT))
        if position >= rank:
            order.append(put_off.pop(0))
    return order + put_off


def _zero_bubble_v(p: int, m: int, v: int, rank: int) -> Order:
    return [event for unit in units("zero_bubble_v", p, m)[rank] for event in unit]


def _dual_pipe_v(p: int, m: int, v: int, rank: int) -> Order:
    return [event for unit in units("dual_pipe_v", p, m)[rank] for event in unit]


def micro_per_round(num_ranks: int, num_micro: int) -> int:
    """Micro-batches that pass a stage before its rank turns to the next one: p, or a little more or fewer."""
    rounds = max(1, num_micro // num_ranks)
    if num_micro % rounds:
        raise InvalidPlan(
            f"{num_micro} micro-batches in {rounds} rounds over {num_ranks} ranks",
            expected="a whole number in each round",
            where="interleaved schedule",
            next_step=f"use a multiple of {num_ranks} micro-batches",
        )
    return num_micro // rounds


def _rounds(p: int, m: int, v: int, rank: int, per_round: int) -> tuple[Iterator[Event], Iterator[Event]]:
    """Forwards and backwards of a rank in depth-first order; backwards take the stages from the last."""
    turns = [(turn, range(first, first + per_round)) for first in range(0, m, per_round) for turn in range(v)]
    forwards = [Event(FORWARD, turn * p + rank, i) for turn, micros in turns for i in micros]
    backwards = [Event(BACKWARD, (v - 1 - turn) * p + rank, i) for turn, micros in turns for i in micros]
    return iter(forwards), iter(backwards)


_MAKERS: dict[str, Callable[[int, int, int, int], Order]] = {
    "fill_drain": _fill_drain,
    "one_f_one_b": _one_f_one_b,
    "breadth_first": _breadth_first,
    "interleaved": _interleaved,
    "zero_bubble": _zero_bubble,
    "zero_bubble_v": _zero_bubble_v,
    "dual_pipe_v": _dual_pipe_v,
}
