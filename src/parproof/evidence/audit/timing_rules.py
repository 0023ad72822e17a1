"""Rules about timings: repeated, told by the slowest rank, and read only where the result was right."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from parproof.evidence import level
from parproof.evidence.audit.findings import Pair, record_rule


@record_rule("timing-repeated", "A timing has warm-up and repeats, and every rank's samples.")
def timing_repeated(record: dict[str, Any]) -> Iterator[Pair]:
    """The first round pays for connections; one sample has no spread."""
    world_size = record["topology"]["world_size"]
    for entry in record["time"]["measured"] or ():
        if entry["warmup"] < 1 or entry["repeats"] < level.MIN_REPEATS:
            yield f"timing {entry['name']}", f"{entry['warmup']} warm-up rounds, {entry['repeats']} repeats"
        if world_size is not None and len(entry["samples_s"]) != world_size:
            yield f"timing {entry['name']} of {world_size} ranks", f"samples of {len(entry['samples_s'])}"


@record_rule("timing-derived", "Median and P95 are those of the slowest rank in each repeat.")
def timing_derived(record: dict[str, Any]) -> Iterator[Pair]:
    """A mean over ranks hides the one that everybody waits for."""
    for entry in record["time"]["measured"] or ():
        lengths = {len(samples) for samples in entry["samples_s"]}
        if lengths != {entry["repeats"]}:
            yield f"{entry['repeats']} repeats of {entry['name']}", f"{sorted(lengths)} samples a rank"
            continue
        slowest = sorted(max(samples) for samples in zip(*entry["samples_s"], strict=True))
        derived = statistics.median(slowest), slowest[-(-95 * len(slowest) // 100) - 1]
        if (entry["median_s"], entry["p95_s"]) != derived:
            yield (
                f"median, P95 {entry['median_s']}, {entry['p95_s']} of {entry['name']}",
                f"{derived[0]}, {derived[1]}",
            )


@record_rule("timing-observed", "Warm-up and repeats of the observation are those of the timings.")
def timing_observed(record: dict[str, Any]) -> Iterator[Pair]:
    """Otherwise a level could rest on repeats that were never made."""
    if record["observation"] is None:
        return
    measured = record["time"]["measured"] or ()
    derived = (
        min((entry["warmup"] for entry in measured), default=None),
        min((entry["repeats"] for entry in measured), default=None),
    )
    claimed = (record["observation"]["warmup"], record["observation"]["repeats"])
    if claimed != derived:
        yield f"warm-up, repeats {claimed}", str(derived)


@record_rule("timing-after-correctness", "No timing is read where a value claim failed.")
def timing_after_correctness(record: dict[str, Any]) -> Iterator[Pair]:
    """A wrong result can be as fast as it likes."""
    time, status = record["time"], record["conclusion"]["status"]
    figures = [n for n in ("measured", "compute_s", "communication_s", "exposed_s") if time[n] is not None]
    if figures and status != "ok":
        yield f"a timing ({', '.join(figures)})", f"status {status}"
