"""Tests and their attempts: each record is one attempt, each test counts once, as in the audit."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from parproof.evidence.attempts import Ending, Tally
from parproof.evidence.report.gather import shown_status

MAX_FLAKY = 100


class Attempt(NamedTuple):
    """One record of a test. `shard`: run id of where it was made, empty in evidence that was not merged."""

    sequence: int
    number: int
    status: str
    shard: str


class AttemptsByTest:
    """The audit's way of counting, over every record that can be shown.

    The audit's own tally may hold less: it stops at a manifest, or at too many lines, that cannot be read.
    """

    def __init__(self) -> None:
        self.tally = Tally()
        self.shards: dict[str, None] = {}
        self._attempts: dict[str, list[Attempt]] = {}

    def add(self, record: dict[str, Any]) -> None:
        """One attempt."""
        nodeid, ending = record["identity"]["nodeid"], Ending.of(record["conclusion"])
        self.tally.add(nodeid, ending)
        shard = record["origin"]["run_id"] if "origin" in record else ""
        if shard:
            self.shards[shard] = None
        number = record.get("attempt", 1)
        self._attempts.setdefault(nodeid, []).append(
            Attempt(record["sequence"], number, shown_status(ending), shard)
        )

    @property
    def num_tests(self) -> int:
        """Each once."""
        return len(self.tally.worst)

    @property
    def num_flaky(self) -> int:
        """Tests of which one attempt ended otherwise than another."""
        return len(self.tally.flaky)

    def flaky(self) -> list[tuple[str, list[Attempt]]]:
        """The first of them with all attempts."""
        return [(nodeid, self._attempts[nodeid]) for nodeid in self.tally.flaky[:MAX_FLAKY]]

    def counts(self) -> Counter[str]:
        """Tests by status."""
        return Counter(shown_status(ending) for ending in self.tally.worst.values())

    def levels(self) -> Counter[str]:
        """Tests by the level of their worst attempt."""
        return Counter(ending.level for ending in self.tally.worst.values())
