"""Places on the page for what is drawn: axes, bars and points in user units of an SVG. No words here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from parproof.evidence.report.curves import Curve, Point, Series
from parproof.evidence.report.pipeline import Bar, Gantt

Formatted = Callable[[float], str]


@dataclass(frozen=True)
class Tick:
    """A line across the chart and what is written at it."""

    at: float
    value: float


@dataclass(frozen=True)
class LogAxis:
    """Values from `low` to `high` on pixels from `start` to `end`, by their logarithm."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Where a value above 0 is; what lies outside is put on the edge."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + min(1.0, max(0.0, share)) * (self.end - self.start), 1)

    def ticks(self, base: float, most: int = 7) -> list[Tick]:
        """Powers of the base inside, thinned to at most so many."""
        first = math.ceil(math.log(self.low, base) - 1e-9)
        last = math.floor(math.log(self.high, base) + 1e-9)
        step = max(1, -(-(last - first + 1) // most))
        return [Tick(self.at(base**n), base**n) for n in range(first, last + 1, step)]


def log_axis(values: Sequence[float], start: float, end: float) -> LogAxis:
    """An axis with some room on both sides; one value alone gets a factor of two."""
    low, high = min(values), max(values)
    room = max((high / low) ** 0.08, 1.15)
    return LogAxis(low / room, high * room, start, end)


@dataclass(frozen=True)
class Mark:
    """One payload of one series: x, y of the median, ends of the interval, the P95."""

    x: float
    y: float
    low: float
    high: float
    p95: float


@dataclass(frozen=True)
class Line:
    """One series; `model` is empty where no fit is reported."""

    number: int
    subject: str
    marks: list[Mark]
    model: list[tuple[float, float]]

    @property
    def path(self) -> str:
        """Through the medians."""
        return " ".join(f"{mark.x},{mark.y}" for mark in self.marks)

    @property
    def model_path(self) -> str:
        """Along the model."""
        return " ".join(f"{x},{y}" for x, y in self.model)


@dataclass(frozen=True)
class Plot:
    """One chart over payload."""

    width: float
    height: float
    left: float
    bottom: float
    right: float
    top: float
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    lines: list[Line]


WIDTH, HEIGHT, LEFT, BOTTOM, RIGHT, TOP = 470.0, 290.0, 66.0, 250.0, 458.0, 14.0
Values = tuple[float, float, float, float]  # median, interval, P95


def times(point: Point) -> Values:
    """Seconds."""
    return point.time.median_s, point.time.low_s, point.time.high_s, point.time.p95_s


def bandwidths(point: Point) -> Values:
    """GB/s of the bus; the long times are the low bandwidths."""
    scaled = point.bus_GBps * point.time.median_s
    return point.bus_GBps, scaled / point.time.high_s, scaled / point.time.low_s, scaled / point.time.p95_s


def plot(curve: Curve, read: Callable[[Point], Values]) -> Plot:
    """Median with its interval over payload, both axes logarithmic."""
    points = [point for series in curve.series for point in series.points]
    x = log_axis([point.size for point in points], LEFT, RIGHT)
    y = log_axis([value for point in points for value in read(point)], BOTTOM, TOP)
    lines = [_line(number, series, x, y, read) for number, series in enumerate(curve.series)]
    return Plot(WIDTH, HEIGHT, LEFT, BOTTOM, RIGHT, TOP, x.ticks(4.0), _y_ticks(y), lines)


def _y_ticks(axis: LogAxis) -> list[Tick]:
    """Powers of ten; over a short range 1, 2 and 5 times those."""
    if len(ticks := axis.ticks(10.0)) >= 4:
        return ticks
    first, last = math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high))
    values = [n * 10.0**power for power in range(first, last + 1) for n in (1, 2, 5)]
    return [Tick(axis.at(value), value) for value in values if axis.low <= value <= axis.high]


def _line(number: int, series: Series, x: LogAxis, y: LogAxis, read: Callable[[Point], Values]) -> Line:
    marks = []
    for point in series.points:
        middle, low, high, p95 = map(y.at, read(point))
        # Series stand beside each other at a payload, so that their intervals can be told apart.
        marks.append(Mark(round(x.at(point.size) + 7 * number, 1), middle, low, high, p95))
    model = []
    if series.model is not None:
        for point in series.points:
            time_s = series.model.time_s(point.size)
            median = read(point)[0]
            value = time_s if read is times else median * point.time.median_s / time_s
            model.append((round(x.at(point.size) + 7 * number, 1), y.at(value)))
    return Line(number, series.subject, marks, model)


ROW, LABEL, SPAN = 34.0, 74.0, 860.0


@dataclass(frozen=True)
class Block:
    """A bar on the page; `label` only where there is room for it."""

    x: float
    y: float
    width: float
    bar: Bar
    label: str
    paler: bool


@dataclass(frozen=True)
class Timeline:
    """A Gantt chart on the page."""

    width: float
    height: float
    rows: list[tuple[int, float]]
    ticks: list[Tick]
    blocks: list[Block]


def gantt(chart: Gantt) -> Timeline:
    """Ranks from top to bottom, time from left to right."""
    scale = SPAN / chart.makespan if chart.makespan > 0 else 0.0
    first_stage = {bar.rank: bar.stage for bar in reversed(chart.bars) if bar.kind == "F"}
    for bar in chart.bars:
        first_stage[bar.rank] = min(first_stage.get(bar.rank, bar.stage), bar.stage)
    blocks = []
    for bar in chart.bars:
        width = max(1.0, (bar.end - bar.start) * scale - 1)
        label = f"{bar.kind}{bar.micro}" if width >= 17 else (str(bar.micro) if width >= 9 else "")
        x, y = LABEL + bar.start * scale, 8 + bar.rank * ROW
        paler = bar.stage != first_stage[bar.rank]
        blocks.append(Block(round(x, 1), y, round(width, 1), bar, label, paler))
    rows = [(rank, 8 + rank * ROW) for rank in range(chart.num_ranks)]
    step = _nice(chart.makespan / 8)
    ticks = [
        Tick(round(LABEL + n * step * scale, 1), n * step)
        for n in range(int(chart.makespan / step + 1e-9) + 1)
    ]
    return Timeline(LABEL + SPAN + 12, 8 + chart.num_ranks * ROW + 26, rows, ticks, blocks)


def _nice(step: float) -> float:
    """1, 2 or 5 times a power of ten, at or above the step."""
    if step <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * n for n in (1, 2, 5, 10) if power * n >= step * (1 - 1e-9))
