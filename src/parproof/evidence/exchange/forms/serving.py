"""What the result files of serving benchmarks have in common: counts, rates, percentiles of latency.

A client saw an engine answer. What the engine ran on, and whether the answers were right, is not in the file.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

from parproof.evidence.exchange.assessment import (
    Assessment,
    NotFinite,
    close_to,
    number,
    numbers,
    word,
)
from parproof.evidence.exchange.contract import shown

_PERCENTILE = re.compile(r"^p(\d{1,3}(?:\.\d{1,3})?)_(\w+_ms)$")


def counts(told: Assessment, run: dict[str, Any], failed: float | None) -> None:
    """Completed and failed add up, and a rate times the duration gives the count."""
    duration, completed = number(run.get("duration")), number(run.get("completed"))
    told.measured = bool(completed) and duration is not None and duration > 0
    if duration is None or duration <= 0:
        told.found("not-positive", "duration", run.get("duration"), "a time above 0")
        return
    if failed:
        told.found(
            "requests-failed",
            "failed",
            f"{failed:g} of {(completed or 0) + failed:g}",
            "a workload that was served",
        )
        told.give("conclusion", failure=f"{failed:g} requests failed")
    elif failed is not None:
        told.give("conclusion", failure=None)


def rate(told: Assessment, run: dict[str, Any], name: str, *count_names: str) -> None:
    """One rate against the sum of counts."""
    given, duration = number(run.get(name)), number(run.get("duration"))
    parts = [number(run.get(part)) for part in count_names]
    if given is None or duration is None or duration <= 0 or None in parts:
        return
    total = sum(part for part in parts if part is not None)
    if not close_to(given * duration, total, absolute=0.01):
        told.found("rate-consistent", name, given, f"{total:g} in {duration:g} s: {total / duration:.5g}")


def percentiles(told: Assessment, run: dict[str, Any]) -> None:
    """A higher percentile is not lower; the median is the 50th."""
    found: dict[str, list[tuple[float, str, float]]] = {}
    for name, value in run.items():
        figure = number(value)
        if figure is None:
            continue
        if match := _PERCENTILE.match(name):
            found.setdefault(match[2], []).append((float(match[1]), name, figure))
        elif name.startswith("median_"):
            found.setdefault(name.removeprefix("median_"), []).append((50.0, name, figure))
        elif name.startswith("max_") and name.endswith("_ms"):
            found.setdefault(name.removeprefix("max_"), []).append((100.0, name, figure))
    for points in found.values():
        ordered = sorted(points)
        for (_, low_name, low), (_, name, high) in itertools.pairwise(ordered):
            if high < low and not close_to(high, low, relative=1e-9):
                told.found("percentile-order", name, high, f"{low} or more, which is {low_name}")


def first_before_last(told: Assessment, run: dict[str, Any], whole: str) -> None:
    """Of every request, so of mean and median too: the first token comes before the last."""
    for kind in ("mean", "median"):
        first, last = number(run.get(f"{kind}_ttft_ms")), number(run.get(f"{kind}_{whole}_ms"))
        if (
            first is not None
            and last is not None
            and first > last
            and not close_to(first, last, relative=1e-9)
        ):
            told.found(
                "latency-order", f"{kind}_ttft_ms", first, f"{last} or less, which is {kind}_{whole}_ms"
            )


def details(told: Assessment, run: dict[str, Any], failed: float | None) -> None:
    """Lists of every request, where they were kept, against what was made of them."""
    completed = number(run.get("completed"))
    for name in ("ttfts", "input_lens", "output_lens", "errors"):
        kept = run.get(name)
        if not isinstance(kept, list) or completed is None or failed is None:
            continue
        if len(kept) != completed + failed:
            told.found("count-consistent", name, f"{len(kept)} requests", f"{completed + failed:g}")
    lengths, total = numbers(run.get("output_lens")), number(run.get("total_output_tokens"))
    if lengths is not None and total is not None and sum(lengths) != total:
        told.found(
            "count-consistent", "total_output_tokens", total, f"{sum(lengths):g}, the sum of output_lens"
        )
    firsts, mean = numbers(run.get("ttfts")), number(run.get("mean_ttft_ms"))
    if firsts is not None and mean is not None and not failed:
        derived = 1e3 * sum(firsts) / len(firsts)
        if not close_to(mean, derived, absolute=1e-6):
            told.found("value-derived", "mean_ttft_ms", mean, f"{derived:.5g}, the mean of ttfts")


def groups(told: Assessment, run: dict[str, Any], engine: str | None, whole: str) -> None:
    """Public fields, and the figures with their units in their names."""
    told.claims = {"backend": run.get("backend"), "label": run.get("label") or run.get("tag")}
    told.give("identity", semantic_id=None, run_label=word(run.get("label")) or word(run.get("tag")))
    told.give("identity", workload_id=word(run.get("dataset_name")), strategy=None)
    told.give("communication", backend=engine)
    for name, field in (("median", "median_s"), ("p95", "p95_s")):
        value = number(run.get(f"{name}_{whole}_ms"))
        if value is not None:
            told.give("time", **{field: value / 1e3})
    told.give("conclusion", correctness="not_evaluated")
    plain = {
        name: value
        for name, value in run.items()
        if number(value) is not None or (isinstance(value, str) and not isinstance(value, NotFinite))
    }
    told.values.append(
        {name: shown(value) if isinstance(value, str) else value for name, value in plain.items()}
    )


def common_limits(told: Assessment) -> None:
    """What no client's file can show."""
    for limit in ("client-side", "single-run", "warm-up-not-recorded", "correctness-not-judged"):
        told.limited(limit, "(file)")
