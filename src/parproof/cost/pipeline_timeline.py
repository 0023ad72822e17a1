"""From orders to time: who waits for whom, when everything ends, and what is held in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from parproof.cost.pipeline import BACKWARD, FORWARD, INPUT, WEIGHT, Event
from parproof.errors import InvalidPlan

RELEASES = (BACKWARD, WEIGHT)


def needs(event: Event, num_stages: int, split: bool) -> list[Event]:
    """What has to be done before: a backward needs its own forward and the next stage's backward."""
    kind, stage, micro = event
    if kind == FORWARD:
        return [Event(FORWARD, stage - 1, micro)] if stage else []
    if kind == WEIGHT:
        return [Event(INPUT, stage, micro)]
    later = [Event(INPUT if split else BACKWARD, stage + 1, micro)] if stage + 1 < num_stages else []
    return [Event(FORWARD, stage, micro), *later]


def problems(orders: Sequence[Sequence[Event]], placement: Sequence[int], num_micro: int) -> list[str]:
    """What is wrong with a set of orders; empty when they can run and do everything once.

    Whole and split backwards may be mixed: B counts as I and W in one.
    """
    found: list[str] = []
    for rank, order in enumerate(orders):
        found += [
            f"rank {rank}: {e} belongs to rank {placement[e.stage]}" for e in _foreign(order, rank, placement)
        ]
        done: set[Event] = set()
        for event in (part for whole in order for part in parts(whole)):
            own = [e for e in needs(event, len(placement), True) if e.stage == event.stage]
            found += [f"rank {rank}: {event} before {e}" for e in own if e not in done]
            done.add(event)
    counted = Counter(part for order in orders for event in order for part in parts(event))
    for event in sorted(_all(len(placement), num_micro) | set(counted)):
        wanted = int(event.micro < num_micro and event.stage < len(placement))
        if counted[event] != wanted:
            found.append(f"{event} done {counted[event]} times, expected {wanted}")
    if not found:
        stuck = _run(orders, placement, lambda event: 1.0, 0.0, False, {}).stuck
        found += [f"deadlock: every rank waits, at {', '.join(map(str, stuck))}"] * bool(stuck)
    return found


def _foreign(order: Iterable[Event], rank: int, placement: Sequence[int]) -> list[Event]:
    return [e for e in order if e.stage < len(placement) and placement[e.stage] != rank]


def _all(num_stages: int, num_micro: int) -> set[Event]:
    return {
        Event(kind, stage, i)
        for kind in (FORWARD, INPUT, WEIGHT)
        for stage in range(num_stages)
        for i in range(num_micro)
    }


def parts(event: Event) -> list[Event]:
    """B as I and W."""
    if event.kind == BACKWARD:
        return [event._replace(kind=INPUT), event._replace(kind=WEIGHT)]
    return [event]


@dataclass(frozen=True)
class Timeline:
    """When each event runs. `stuck`: the event each unfinished rank is at, when nobody can go on.

    busy_by_rank_s   time in which a rank works; events that overlap count once
    """

    start_s: dict[Event, float]
    end_s: dict[Event, float]
    busy_by_rank_s: tuple[float, ...]
    stuck: tuple[Event, ...] = ()

    @property
    def num_ranks(self) -> int:
        """Ranks that have an order."""
        return len(self.busy_by_rank_s)

    @property
    def makespan_s(self) -> float:
        """From the first start to the last end."""
        return max(self.end_s.values()) - min(self.start_s.values())

    @property
    def busy_s(self) -> float:
        """Work of all ranks together."""
        return sum(self.busy_by_rank_s)

    @property
    def idle_by_rank_s(self) -> list[float]:
        """Time of the makespan in which a rank does not work."""
        return [self.makespan_s - busy_s for busy_s in self.busy_by_rank_s]

    @property
    def bubble_ratio(self) -> float:
        """Share of all ranks' time without work."""
        return 1.0 - self.busy_s / (self.num_ranks * self.makespan_s)


def slots(event: Event) -> float:
    """Equal slots for forward and either part of backward: a whole backward takes two."""
    return 2.0 if event.kind == BACKWARD else 1.0


def timeline(
    orders: Sequence[Sequence[Event]],
    placement: Sequence[int],
    duration_s: Callable[[Event], float] = lambda event: 1.0,
    *,
    transfer_s: float = 0.0,
    blocks_sender: bool = False,
    overlapped: Mapping[tuple[Event, ...], float] | None = None,
) -> Timeline:
    """Run the orders, each event as early as its rank and its needs allow.

    transfer_s      time a tensor takes from one rank to another; none between stages of one rank
    blocks_sender   True: the sender cannot work meanwhile (no overlap of communication and compute)
    overlapped      pairs of events, one after the other in their order, that run as one piece of work → time both
                    take; it starts when both can, and neither result leaves before its end
    Errors          InvalidPlan when no rank can go on; names the event each one waits at
    """
    made = _run(orders, placement, duration_s, transfer_s, blocks_sender, overlapped or {})
    if made.stuck:
        raise InvalidPlan(
            f"no event can run: ranks wait at {', '.join(map(str, made.stuck))}", where="pipeline schedule"
        )
    return made


def _run(
    orders: Sequence[Sequence[Event]],
    placement: Sequence[int],
    duration_s: Callable[[Event], float],
    transfer_s: float,
    blocks_sender: bool,
    overlapped: Mapping[tuple[Event, ...], float],
) -> Timeline:
    start: dict[Event, float] = {}
    end: dict[Event, float] = {}
    at, free_s, busy_s = [0] * len(orders), [0.0] * len(orders), [0.0] * len(orders)
    done: dict[Event, tuple[float, int]] = {}
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(orders):
            while at[rank] < len(order):
                unit = _unit(order, at[rank], overlapped)
                own, before = _waits(unit, len(placement))
                if any(e not in done for e in before):
                    break
                arrivals = [done[e][0] + transfer_s * (done[e][1] != rank) for e in before]
                begin_s = max([free_s[rank], *arrivals])
                took_s = overlapped[unit] if unit in overlapped else duration_s(unit[0])
                start |= dict.fromkeys(unit, begin_s)
                end |= dict.fromkeys(unit, begin_s + took_s)
                done |= dict.fromkeys(own, (begin_s + took_s, rank))
                leaving = sum(_leaves(event, placement) for event in unit)
                free_s[rank] = begin_s + took_s + transfer_s * blocks_sender * leaving
                busy_s[rank] += took_s
                at[rank] += len(unit)
                moved = True
    stuck = tuple(order[i] for order, i in zip(orders, at, strict=True) if i < len(order))
    return Timeline(start, end, tuple(busy_s), stuck)


def _unit(
    order: Sequence[Event], position: int, overlapped: Container[tuple[Event, ...]]
) -> tuple[Event, ...]:
    """What runs in one piece: an event, or two that overlap."""
    pair = tuple(order[position : position + 2])
    return pair if pair in overlapped else pair[:1]


def _waits(unit: Sequence[Event], num_stages: int) -> tuple[list[Event], list[Event]]:
    """(parts of a piece of work, what has to be done before any of them)."""
    own = [part for event in unit for part in parts(event)]
    return own, [e for part in own for e in needs(part, num_stages, True) if e not in own]


def _leaves(event: Event, placement: Sequence[int]) -> bool:
    """Does the result of an event go to another rank?"""
    if event.kind == WEIGHT:
        return False
    target = event.stage + (1 if event.kind == FORWARD else -1)
    return 0 <= target < len(placement) and placement[target] != placement[event.stage]


def peak_live_per_stage(
    orders: Sequence[Sequence[Event]], num_stages: int, rows: Sequence[int] = ()
) -> list[int]:
    """Micro-batches whose activations each stage holds at its peak: from forward to (weight) backward.

    rows   of each micro-batch; given, rows are counted and not micro-batches
    """
    peaks, live = [0] * num_stages, [0] * num_stages
    for order in orders:
        for kind, stage, micro in order:
            size = rows[micro] if rows else 1
            live[stage] += size * ((kind == FORWARD) - (kind in RELEASES))
            peaks[stage] = max(peaks[stage], live[stage])
    return peaks


def peak_live_per_rank(orders: Sequence[Sequence[Event]]) -> list[int]:
    """The same over all stages of a rank together."""
    peaks = []
    for order in orders:
        live = peak = 0
        for event in order:
            live += (event.kind == FORWARD) - (event.kind in RELEASES)
            peak = max(peak, live)
        peaks.append(peak)
    return peaks
