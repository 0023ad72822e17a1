"""From orders to time: who waits for whom, when everything ends, and what is held in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
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
        stuck = _run(orders, placement, lambda event: 1.0, 0.0, False).stuck
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
    """When each event runs. `stuck`: the event each unfinished rank is at, when nobody can go on."""

    start_s: dict[Event, float]
    end_s: dict[Event, float]
    num_ranks: int
    stuck: tuple[Event, ...] = ()

    @property
    def makespan_s(self) -> float:
        """From the first start to the last end."""
        return max(self.end_s.values()) - min(self.start_s.values())

    @property
    def busy_s(self) -> float:
        """Work of all ranks together."""
        return sum(self.end_s[event] - self.start_s[event] for event in self.end_s)

    @property
    def bubble_ratio(self) -> float:
        """Share of all ranks' time without work."""
        return 1.0 - self.busy_s / (self.num_ranks * self.makespan_s)


def timeline(
    orders: Sequence[Sequence[Event]],
    placement: Sequence[int],
    duration_s: Callable[[Event], float] = lambda event: 1.0,
    *,
    transfer_s: float = 0.0,
    blocks_sender: bool = False,
) -> Timeline:
    """Run the orders, each event as early as its rank and its needs allow.

    transfer_s      time a tensor takes from one rank to another; none between stages of one rank
    blocks_sender   True: the sender cannot work meanwhile (no overlap of communication and compute)
    Errors          InvalidPlan when no rank can go on; names the event each one waits at
    """
    made = _run(orders, placement, duration_s, transfer_s, blocks_sender)
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
) -> Timeline:
    start: dict[Event, float] = {}
    end: dict[Event, float] = {}
    at, free_s = [0] * len(orders), [0.0] * len(orders)
    done: dict[Event, tuple[float, int]] = {}
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(orders):
            while at[rank] < len(order):
                event = order[at[rank]]
                before = [e for part in parts(event) for e in needs(part, len(placement), True)]
                before = [e for e in before if e not in parts(event)]
                if any(e not in done for e in before):
                    break
                arrivals = [done[e][0] + transfer_s * (done[e][1] != rank) for e in before]
                start[event] = max([free_s[rank], *arrivals])
                free_s[rank] = end[event] = start[event] + duration_s(event)
                done |= dict.fromkeys(parts(event), (end[event], rank))
                free_s[rank] += transfer_s * (blocks_sender and _leaves(event, placement))
                at[rank] += 1
                moved = True
    stuck = tuple(order[i] for order, i in zip(orders, at, strict=True) if i < len(order))
    return Timeline(start, end, len(orders), stuck)


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
