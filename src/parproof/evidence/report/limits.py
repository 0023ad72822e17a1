"""What does not follow from this evidence, as plain sentences computed from what it holds."""

from __future__ import annotations

from parproof.evidence.report.contents import Contents
from parproof.evidence.report.words import Words


def limits(c: Contents, words: Words) -> list[str]:
    """The sentences that apply, the widest first."""
    totals, manifest = c.totals, c.evidence.manifest
    told: list[str] = []
    # Several runs, perhaps of several machines and days: what is said of one run would not be true of them.
    suffix = ".merged" if c.shards else ""
    if not totals.num_records:
        told.append(words("limits.no_records"))
    elif totals.num_benchmarks:
        told.append(words("limits.some_performance", n=totals.num_benchmarks, total=totals.num_records))
    else:
        told.append(words("limits.no_performance"))
    if totals.scopes["multi_host"]:
        told.append(words("limits.some_cross_node", n=totals.scopes["multi_host"]))
    else:
        told.append(words(f"limits.no_cross_node{suffix}"))
    for name in ("emulated_hosts", "single_process"):
        if totals.scopes[name]:
            told.append(words(f"limits.{name}", n=totals.scopes[name]))
    if totals.counts["skipped"]:
        told.append(words("limits.skipped", n=totals.counts["skipped"]))
    if totals.counts["known"]:
        told.append(words("limits.known", n=totals.counts["known"]))
    if totals.counts["failed"] or totals.counts["blocked"]:
        told.append(words("limits.failed", n=totals.counts["failed"] + totals.counts["blocked"]))
    if c.tested.num_flaky:
        told.append(words("limits.flaky", n=c.tested.num_flaky))
    if totals.num_records and not totals.num_other_decisions:
        told.append(words(f"limits.no_decision{suffix}"))
    if manifest is not None and not manifest["complete"]:
        told.append(words("limits.incomplete"))
    told.append(words(f"limits.one_run{suffix}", shards=len(c.shards)))
    if manifest is not None and manifest["source"]["dirty"]:
        told.append(words("limits.dirty"))
    if manifest is not None and manifest["num_deselected"]:
        told.append(words(f"limits.deselected{suffix}", n=manifest["num_deselected"]))
    return [*told, words("limits.seal")]
