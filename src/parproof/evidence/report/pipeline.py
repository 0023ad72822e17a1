"""Pipeline timelines: events that a record holds with their times, else the schedule's model, named as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from parproof.cost.pipeline import BACKWARD, INPUT, Event, placement
from parproof.cost.pipeline_orders import orders
from parproof.cost.pipeline_timeline import Timeline, peak_live_per_rank, slots, timeline
from parproof.errors import InvalidPlan

EXPERIMENT = "PAR-PIPELINE-SCHEDULE"
MAX_CHARTS, MAX_EVENTS, MAX_RANKS = 24, 1_500, 16
# Name in a workload → (name of the order, stages on each rank).
_STAGES = {"interleaved": 2, "breadth_first": 2, "zero_bubble_x2": 2, "zero_bubble_v": 2, "dual_pipe_v": 2}
_ORDERS = {"zero_bubble_x2": "zero_bubble"}
_KINDS = "FBIW"


@dataclass(frozen=True)
class Bar:
    """One event of one rank: time in the chart's unit."""

    rank: int
    start: float
    end: float
    kind: str
    stage: int
    micro: int


@dataclass
class Gantt:
    """One timeline. `observed`: the bars are times in seconds that ranks took; else slots of the model.

    sequences   records that it belongs to
    live        measured peak of live activations by rank, where a record has it; model_live: what the order gives
    """

    schedule: str
    num_ranks: int
    num_micro: int
    observed: bool
    bars: list[Bar]
    makespan: float
    bubble: float
    sequences: list[int] = field(default_factory=list)
    subject: str = ""
    live: list[int] | None = None
    model_live: list[int] | None = None


class Pipelines:
    """Collects timelines; equal models are drawn once."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, int, int], Gantt | None] = {}
        self._observed: list[Gantt] = []
        self._num_dropped = self._num_cut = 0
        self.not_modelled: dict[str, list[int]] = {}

    def add(self, record: dict[str, Any]) -> None:
        """Look at a record of the pipeline experiment; others say nothing about schedules."""
        if record["identity"]["semantic_id"] != EXPERIMENT or record["conclusion"]["status"] == "skipped":
            return
        workload = record["identity"]["workload"]
        schedule, world, micro = (workload.get(name) for name in ("schedule", "world", "micro_batches"))
        if not (isinstance(schedule, str) and _count(world) and _count(micro)):
            return
        seen = _observed(record, schedule, int(world), int(micro))
        if seen is not None and len(self._observed) < MAX_CHARTS:
            self._observed.append(seen)
        self._model(record, schedule, int(world), int(micro))

    def _model(self, record: dict[str, Any], schedule: str, world: int, micro: int) -> None:
        key = schedule, world, micro
        if key not in self._models:
            if len(self._models) == 4 * MAX_CHARTS:
                self._num_dropped += 1
                return
            self._models[key] = modelled(*key)
        found, sequence = self._models[key], record["sequence"]
        if found is None:
            self.not_modelled.setdefault(f"{schedule}, W={world}, m={micro}", []).append(sequence)
            return
        found.sequences.append(sequence)
        live = record["measurements"].get("peak_live_activations_per_rank")
        if isinstance(live, list) and len(live) == world and all(isinstance(n, int) for n in live):
            found.live = found.live or live

    @property
    def num_left_out(self) -> int:
        """What there was too much of; complete after `charts`."""
        return self._num_dropped + self._num_cut

    def charts(self) -> list[Gantt]:
        """Observed ones first."""
        found = [*self._observed, *(chart for chart in self._models.values() if chart is not None)]
        self._num_cut = max(0, len(found) - MAX_CHARTS)
        return found[:MAX_CHARTS]


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 64


def modelled(schedule: str, num_ranks: int, num_micro: int) -> Gantt | None:
    """The canonical order in equal slots, None without one.

    A backward split in two takes one slot for each part, and where only some are split, the others take two.
    """
    stages, name = _STAGES.get(schedule, 1), _ORDERS.get(schedule, schedule)
    if num_ranks > MAX_RANKS or 3 * num_ranks * stages * num_micro > MAX_EVENTS:
        return None
    try:
        order = orders(name, num_ranks, num_micro, stages)
        placed = placement(name, num_ranks, stages)
        is_mixed = {BACKWARD, INPUT} <= {event.kind for of_rank in order for event in of_rank}
        made = timeline(order, placed, slots) if is_mixed else timeline(order, placed)
    except InvalidPlan:
        return None
    return _chart(schedule, num_micro, placed, made, peak_live_per_rank(order))


def _chart(schedule: str, num_micro: int, placed: Sequence[int], made: Timeline, live: list[int]) -> Gantt:
    bars = [
        Bar(placed[e.stage], made.start_s[e], made.end_s[e], e.kind, e.stage, e.micro) for e in made.start_s
    ]
    bars.sort(key=lambda bar: (bar.rank, bar.start))
    num_ranks = made.num_ranks
    return Gantt(
        schedule, num_ranks, num_micro, False, bars, made.makespan_s, made.bubble_ratio, model_live=live
    )


def _observed(record: dict[str, Any], schedule: str, world: int, micro: int) -> Gantt | None:
    """`measurements.events[rank]`: (kind, edge, stage, micro-batch, time in seconds), starts and ends in pairs."""
    told = record["measurements"].get("events")
    if not (isinstance(told, list) and len(told) == world <= MAX_RANKS):
        return None
    bars: list[Bar] = []
    for rank, entries in enumerate(told):
        opened: dict[Event, float] = {}
        for entry in entries if isinstance(entries, list) else ():
            if not _is_event(entry) or len(bars) == MAX_EVENTS:
                continue
            event, at_s = Event(entry[0], entry[2], entry[3]), float(entry[4])
            if entry[1] == "start":
                opened[event] = at_s
            elif event in opened and at_s >= opened[event]:
                bars.append(Bar(rank, opened.pop(event), at_s, *event))
    if not bars:
        return None
    origin = min(bar.start for bar in bars)
    bars = [Bar(b.rank, b.start - origin, b.end - origin, b.kind, b.stage, b.micro) for b in bars]
    makespan = max(bar.end for bar in bars)
    busy = sum(bar.end - bar.start for bar in bars)
    bubble = 1 - busy / (world * makespan) if makespan > 0 else 0.0
    subject = (record["identity"]["subject"] or {"name": ""})["name"]
    return Gantt(schedule, world, micro, True, bars, makespan, bubble, [record["sequence"]], subject)


def _is_event(entry: Any) -> bool:
    if not (isinstance(entry, list) and len(entry) == 5):
        return False
    kind, _, stage, micro, at_s = entry
    numbers = all(type(n) is int and 0 <= n < 10**6 for n in (stage, micro))
    clock = type(at_s) in (int, float) and math.isfinite(at_s)
    return numbers and clock and isinstance(kind, str) and len(kind) == 1 and kind in _KINDS
