"""Rules about all records together, and about the manifest over them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from parproof import registry
from parproof.evidence import canonical
from parproof.evidence.attempts import Tally, wrongly_numbered
from parproof.evidence.audit.findings import declare

Told = Iterator[tuple[str, str, str]]


class Chain:
    """Each record names the digest of the one before it; the manifest names the last."""

    rule = declare(
        "chain",
        "Records are all there, in order, unchanged: each names the digest of the one before.",
        "chain",
    )

    def __init__(self, manifest: dict[str, Any]) -> None:
        self._manifest = manifest
        self._previous = canonical.GENESIS
        self._count = 0
        self._broken: list[tuple[str, str, str]] = []

    def see(self, record: dict[str, Any]) -> None:
        """Compare with what came before."""
        broken = record["sequence"] != self._count or record["previous"] != self._previous
        if broken and not self._broken:
            where = f"record {record['sequence']}"
            self._broken.append(
                (
                    where,
                    f"number {record['sequence']} after {record['previous'][:12]}",
                    f"number {self._count} after {self._previous[:12]}",
                )
            )
        self._previous = canonical.digest(record)
        self._count += 1

    def finish(self, tally: Tally) -> Told:
        """The first break, and the end."""
        yield from self._broken[:1]
        claimed = (self._manifest["num_records"], self._manifest["last_record"])
        if claimed != (self._count, self._previous):
            yield (
                "run",
                f"{claimed[0]} records ending in {claimed[1][:12]}",
                f"{self._count}, {self._previous[:12]}",
            )


class OneRun:
    """Records of one run, under one label."""

    rule = declare("one-run", "All records carry the manifest's run id and label.", "one-run")

    def __init__(self, manifest: dict[str, Any]) -> None:
        self._of = manifest["run_id"], manifest["run_label"]
        self._others: list[tuple[str, str, str]] = []

    def see(self, record: dict[str, Any]) -> None:
        """A record from elsewhere has another id."""
        found = record["run_id"], record["identity"]["run_label"]
        if found != self._of:
            self._others.append(
                (
                    f"record {record['sequence']}",
                    f"run {found[0][:8]} «{found[1]}»",
                    f"run {self._of[0][:8]} «{self._of[1]}»",
                )
            )

    def finish(self, tally: Tally) -> Told:
        """Each of them."""
        yield from self._others


class Complete:
    """What was collected has a record for each attempt, and nothing else has."""

    rule = declare(
        "complete",
        "Every collected test has one record for each attempt, every record belongs to a collected test, "
        "and the run came to its end.",
        "complete",
    )

    def __init__(self, manifest: dict[str, Any]) -> None:
        self._manifest = manifest
        self._seen: dict[str, list[int]] = defaultdict(list)

    def see(self, record: dict[str, Any]) -> None:
        """Note the attempt."""
        self._seen[record["identity"]["nodeid"]].append(record.get("attempt", 1))

    def finish(self, tally: Tally) -> Told:
        """Missing, unasked for, and twice."""
        collected = set(self._manifest["collected"])
        if not self._manifest["complete"]:
            yield (
                "run",
                "evidence of a whole run",
                f"a run that ended early (exit status {self._manifest['exit_status']})",
            )
        for nodeid in self._manifest["collection_errors"]:
            yield nodeid, "tests of this file", "it could not be collected"
        for nodeid in sorted(collected - set(self._seen)):
            yield nodeid, "collected", "no record"
        for nodeid in sorted(set(self._seen) - collected):
            yield nodeid, "a record", "not collected"
        for nodeid, attempts in wrongly_numbered(self._seen):
            yield nodeid, "one record an attempt", f"attempts {attempts}"


class Counts:
    """Totals keep passes, failures, blocked and skipped apart, and the exit status follows."""

    rule = declare(
        "counts",
        "Totals and exit status follow from the records, each test counted once with its worst attempt; "
        "a skip is never a pass.",
        "counts",
    )

    def __init__(self, manifest: dict[str, Any]) -> None:
        self._manifest = manifest

    def see(self, record: dict[str, Any]) -> None:
        """The tally of the run has it."""

    def finish(self, tally: Tally) -> Told:
        """Compare."""
        if self._manifest["counts"] != tally.counts:
            yield "run", f"counts {self._manifest['counts']}", str(tally.counts)
        status, num_unexpected = self._manifest["exit_status"], len(tally.unexpected)
        if self._manifest["complete"] and status != int(num_unexpected > 0):
            yield "run", f"exit status {status}", f"{num_unexpected} unexpected failures"


class FlakyNamed:
    """A failure that a retry did not repeat is still one that was seen."""

    rule = declare("flaky-named", "A test whose attempts ended differently is named flaky.", "flaky-named")

    def __init__(self, manifest: dict[str, Any]) -> None:
        self._named = set(manifest.get("flaky", ()))

    def see(self, record: dict[str, Any]) -> None:
        """The tally of the run has it."""

    def finish(self, tally: Tally) -> Told:
        """Those that are not named, and those that are without reason."""
        for nodeid in sorted(set(tally.flaky) - self._named):
            yield nodeid, "one outcome", "attempts that ended differently"
        for nodeid in sorted(self._named - set(tally.flaky)):
            yield nodeid, "flaky", "no attempts that ended differently"


class RequiredClaims:
    """An experiment of which a required claim was only ever skipped was not shown."""

    rule = declare(
        "required-claims",
        "No required claim of an experiment was skipped by every subject in every lane that ran.",
        "required-claims",
    )

    def __init__(self, manifest: dict[str, Any]) -> None:
        self._tests: dict[tuple[str, str], set[str]] = defaultdict(set)

    def see(self, record: dict[str, Any]) -> None:
        """Collect tests by claim; a test that was skipped in one attempt counts as skipped."""
        nodeid = record["identity"]["nodeid"]
        experiment = registry.load().experiment(record["identity"]["semantic_id"] or "")
        for claim in record["identity"]["claims"] if experiment else ():
            if experiment and experiment.claim(claim):
                self._tests[experiment.id, claim].add(nodeid)

    def finish(self, tally: Tally) -> Told:
        """Only skipped or blocked."""
        for (experiment_id, claim_id), tests in sorted(self._tests.items()):
            statuses = {tally.worst[nodeid].status for nodeid in tests}
            experiment = registry.load().experiment(experiment_id)
            claim = experiment.claim(claim_id) if experiment else None
            if claim is not None and claim.required and not statuses & {"ok", "failed"}:
                yield (
                    f"{experiment_id}/{claim_id}",
                    "part of this evidence",
                    f"only {', '.join(sorted(statuses))}",
                )


OF_A_SHARD = (OneRun, Complete, Counts, FlakyNamed)
"""Rules that a shard keeps by itself; its chain is followed while its records are restored."""
RUN_RULES = (Chain, *OF_A_SHARD, RequiredClaims)
