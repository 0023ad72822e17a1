"""Does the order a subject reports hold, and do its ledger, the stages' modules and the clock tell the same?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from parproof.checks.pipeline import canonical, places
from parproof.checks.pipeline_traffic import crossings, last_step, messages
from parproof.cost.pipeline import FORWARD, V_SHAPED, WEIGHT, Event
from parproof.cost.pipeline_orders import orders
from parproof.cost.pipeline_timeline import needs, parts, problems, slots, timeline
from parproof.ranks.run import Run

if TYPE_CHECKING:
    from parproof.programs.pipeline_watch import Entry, Log
    from parproof.workloads.pipeline_cases import Training

EVENTS = "FBIW"


def observed(run: Run) -> list[list[Event]]:
    """The order each rank reports."""
    return [[event for event, _, _ in _spans(result["log"])] for result in run.results]


def timed(run: Run) -> list[list[tuple[str, str, int, int, float]]]:
    """[rank]: (kind, edge, stage, micro-batch, seconds on the host's clock) of each start and end it reports."""
    return [
        [(e.kind, e.edge, e.stage, e.micro, e.at_s) for e in result["log"].entries if e.kind in EVENTS]
        for result in run.results
    ]


def _spans(log: Log) -> list[tuple[Event, Entry, Entry]]:
    """(event, its start, its end), in the order of starts."""
    said = [entry for entry in log.entries if entry.kind in EVENTS]
    return [
        (Event(first.kind, first.stage, first.micro), first, last)
        for first, last in zip(said[::2], said[1::2], strict=False)
    ]


def assert_order(run: Run, case: Training) -> None:
    """Everything once, in an order that can run, equal to the canonical one where there is one, else as short."""
    placed, found = places(case, run.world_size), observed(run)
    for rank, result in enumerate(run.results):
        _assert_pairs(result["log"], run.where(rank))
    wrong = problems(found, placed, case.plan.num_micro_batches)
    if wrong:
        raise AssertionError(f"order of events: {'; '.join(wrong[:3])} ({len(wrong)} problems)")
    for rank, (mine, model) in enumerate(zip(found, canonical(case, run.world_size) or found, strict=True)):
        for position, (one, other) in enumerate(zip_longest(mine, model)):
            if one != other:
                raise AssertionError(
                    f"{run.where(rank)}: event {position} of {case.plan.schedule}: observed {one}, expected {other}"
                )

    if case.plan.schedule in V_SHAPED:
        found_slots, model_slots = makespan_slots(run, case)
        if found_slots > model_slots:
            raise AssertionError(
                f"order of events: {found_slots:g} slots, longer than the model's {model_slots:g}"
                f" ({case.plan.schedule}, {case.plan.num_micro_batches} micro-batches)"
            )


def makespan_slots(run: Run, case: Training) -> tuple[float, float]:
    """(of the observed orders, of the model's order), all parts of all stages one slot each, without transfers.

    A zero-bubble V with fewer than 2p − 1 micro-batches is held against the model's order for 2p − 1: the model does
    not know the shortest one there (docs/costs.md#v-shaped-schedules), but leaving work out makes nothing later. What
    this lets pass: up to 6(2p − 1 − m) slots more than the 6m + p − 1 that nobody can be below.
    """
    placed, plan = places(case, run.world_size), case.plan
    least = 2 * run.world_size - 1 if plan.schedule == "zero_bubble_v" else 1
    num_micro = max(plan.num_micro_batches, least)
    model = orders(plan.schedule, run.world_size, num_micro, plan.stages_per_rank)
    found = timeline(observed(run), placed, slots).makespan_s
    return found, timeline(model, placed, slots).makespan_s


def _assert_pairs(log: Log, where: str) -> None:
    """Start and end alternate: a rank does one thing at a time."""
    said = [entry for entry in log.entries if entry.kind in EVENTS]
    for first, last in zip_longest(said[::2], said[1::2]):
        key = (first.kind, first.stage, first.micro)
        if (
            last is None
            or first.edge != "start"
            or (last.edge, last.kind, last.stage, last.micro) != ("end", *key)
        ):
            raise AssertionError(f"{where}: order of events: {Event(*key)} starts and does not end next")


def assert_reports_are_true(run: Run, case: Training) -> None:
    """What a subject reports against what it cannot change: its ledger, the modules it runs, the host's clock."""
    for rank, result in enumerate(run.results):
        _assert_modules(result["log"], run.where(rank))
        _assert_ledger(run, case, rank)
    _assert_clock(run, case)


def _assert_modules(log: Log, where: str) -> None:
    """Each forward runs its stage's module once, inside; each backward sees its stage's gradient, inside."""
    current: Entry | None = None
    seen: Counter[str] = Counter()
    for entry in log.entries:
        if entry.kind in EVENTS:
            if entry.edge == "end" and current is not None:
                _assert_worked(current, seen, where)
            current, seen = (entry if entry.edge == "start" else None), Counter()
        elif (
            current is None
            or current.stage != entry.stage
            or (entry.kind == "module") != (current.kind == FORWARD)
        ):
            said = (
                "between events"
                if current is None
                else f"while it says {current.kind}({current.stage},{current.micro})"
            )
            raise AssertionError(f"{where}: stage {entry.stage} worked ({entry.kind}) {said}")
        else:
            seen[entry.kind] += entry.edge == "start"


def _assert_worked(event: Entry, seen: Counter[str], where: str) -> None:
    """The first stage may leave all of its backward to W: there are no inputs that need a gradient."""
    kind = "module" if event.kind == FORWARD else "gradient"
    optional = event.kind == WEIGHT or (event.kind == "I" and event.stage == 0)
    if seen[kind] != 1 and not optional:
        name = Event(event.kind, event.stage, event.micro)
        raise AssertionError(f"{where}: the module saw {seen[kind]} passes during {name}, expected 1")


def _assert_ledger(run: Run, case: Training, rank: int) -> None:
    """Nothing is computed before its tensors were asked for, nothing is sent before it was computed."""
    placed, made = places(case, run.world_size), crossings(case, run.world_size)
    begin = min((row.seq for row in last_step(run.ledgers[rank], case)), default=0)
    needed: Counter[int] = Counter()
    produced: Counter[int] = Counter()
    for event, first, last in _spans(run.results[rank]["log"]):
        for peer, count, _ in messages(event, placed, made, arriving=True):
            needed[peer] += count
        for op, bound, at in (("recv", needed, first), ("send", produced, last)):
            calls = Counter(row.peer for row in run.ledgers[rank][begin : at.rows] if row.op == op)
            for peer in {*bound, *(peer for peer in calls if peer is not None)}:
                if calls[peer] < bound[peer] if op == "recv" else calls[peer] > bound[peer]:
                    raise AssertionError(
                        f"{run.where(rank)}: at {first.edge if op == 'recv' else 'end'} of {event} the ledger has"
                        f" {calls[peer]} {op} with rank {peer}, the order it reports needs {bound[peer]}"
                    )
        for peer, count, _ in messages(event, placed, made, arriving=False):
            produced[peer] += count


def _assert_clock(run: Run, case: Training) -> None:
    """No event starts before what it needs has ended, on the clock that the ranks of a host share."""
    num_stages = len(places(case, run.world_size))
    ended: dict[Event, float] = {}
    starts: list[tuple[int, Event, float]] = []
    for rank, result in enumerate(run.results):
        for event, first, last in _spans(result["log"]):
            starts.append((rank, event, first.at_s))
            ended |= dict.fromkeys(parts(event), last.at_s)
    for rank, event, at_s in starts:
        own = parts(event)
        for before in (b for part in own for b in needs(part, num_stages, True)):
            if before not in own and at_s < ended[before]:
                early_us = (ended[before] - at_s) * 1e6
                raise AssertionError(
                    f"{run.where(rank)}: {event} started {early_us:.0f} µs before {before} ended, which it needs"
                )


def occupancy(run: Run) -> list[tuple[float, list[float]]]:
    """(makespan, busy time of each rank) of every step, in seconds, from the intervals of its events."""
    found = []
    for logs in zip(*(result["logs"] for result in run.results), strict=True):
        spans = [[(first.at_s, last.at_s) for _, first, last in _spans(log)] for log in logs]
        times = [at_s for rank in spans for span in rank for at_s in span]
        found.append((max(times) - min(times), [sum(end - start for start, end in rank) for rank in spans]))
    return found


def assert_concurrent(
    run: Run, steps: Sequence[tuple[float, Sequence[float]]], num_micro: int, least_s: float
) -> None:
    """Some step leaves less idle than ranks that take turns would, and none ends before it can.

    In every step but the first, in which torch runs a stage once more to see its shapes, each rank's stage has to run
    once for each micro-batch: fewer, larger ones are another pipeline, also where the machine is too busy to tell.

    steps     of `occupancy`
    least_s   makespan of the model, counting nothing but what every event is known to take
    """
    world = len(steps[0][1])
    idle = min(1 - sum(busy_s) / (world * makespan_s) for makespan_s, busy_s in steps)
    if idle >= 1 - 1 / world:
        raise AssertionError(f"bubble {idle:.3f}: no two ranks work at the same time")
    shortest_s = min(makespan_s for makespan_s, _ in steps)
    if shortest_s < least_s:
        raise AssertionError(f"makespan {shortest_s:.4f} s, shorter than the {least_s:.4f} s it has to take")
    for rank, result in enumerate(run.results):
        for log in result["logs"][1:]:
            passes = sum(entry.kind == "module" and entry.edge == "start" for entry in log.entries)
            if passes != num_micro:
                raise AssertionError(
                    f"{run.where(rank)}: the stage ran {passes} times in a step of {num_micro} micro-batches"
                )
