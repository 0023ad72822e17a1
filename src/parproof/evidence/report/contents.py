"""What a report says, gathered in one pass over the records; page and Markdown are two forms of it."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from parproof import __version__
from parproof.evidence.report.curves import Curves
from parproof.evidence.report.gather import Evidence
from parproof.evidence.report.matrix import Matrix
from parproof.evidence.report.packed import Packed
from parproof.evidence.report.pipeline import Pipelines
from parproof.evidence.report.tested import AttemptsByTest
from parproof.evidence.report.topology import Topology
from parproof.evidence.report.totals import Totals
from parproof.evidence.report.traffic import Heats
from parproof.evidence.report.words import Words


@dataclass
class Contents:
    """All parts, each already counted."""

    evidence: Evidence
    tested: AttemptsByTest
    totals: Totals
    matrix: Matrix
    packed: Packed
    pipelines: Pipelines
    heats: Heats
    curves: Curves
    topology: Topology
    version: str = __version__

    @property
    def findings(self) -> int:
        """How many the audit has."""
        return len(self.evidence.result.findings)

    @property
    def shards(self) -> list[str]:
        """Run ids of what was merged; empty where nothing was."""
        manifest = self.evidence.manifest
        if manifest is None or "merged" not in manifest:
            return list(self.tested.shards)
        return [shard["run_id"] for shard in manifest["merged"]["shards"]]

    @property
    def differences(self) -> list[str]:
        """What differs between shards, by the word of the manifest."""
        manifest = self.evidence.manifest
        return list(manifest["merged"]["differences"]) if manifest and "merged" in manifest else []

    @property
    def lanes(self) -> list[str]:
        """Lanes that occur."""
        return sorted({column[0] for _, group in self.matrix.groups() for column in group.columns} - {""})

    @property
    def subjects(self) -> list[str]:
        """Names of subjects that occur."""
        return sorted({column[1] for _, group in self.matrix.groups() for column in group.columns} - {""})

    @property
    def duration_s(self) -> float | None:
        """From start to end of the run, by its own word."""
        manifest = self.evidence.manifest
        try:
            ends: list[Any] = [manifest[name] for name in ("started", "ended")] if manifest else []
            started, ended = map(datetime.datetime.fromisoformat, ends)
        except ValueError:
            return None
        return max(0.0, (ended - started).total_seconds())


def collect(evidence: Evidence, words: Words) -> Contents:
    """Read every record once. Cost: about half a millisecond a record."""
    tested = AttemptsByTest()
    found = Contents(
        evidence,
        tested,
        Totals(tested),
        Matrix(words.lang, tested.tally),
        Packed(words.cut),
        Pipelines(),
        Heats(),
        Curves(),
        Topology(),
    )
    parts = (found.totals, found.pipelines, found.heats, found.curves, found.topology)
    for record in evidence.records():
        tested.add(record)
        found.packed.add(record, found.matrix.add(record))
        for part in parts:
            part.add(record)
    return found
