"""Several attempts of one test: each has its record, the test counts once, and a retry undoes no failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from parproof.evidence.level import LEVELS

R = TypeVar("R", bound=Mapping[str, Any])

SEVERITY = ("failed", "blocked", "skipped", "ok")
"""From the worst: a skip is no pass, so a test that was skipped once has not passed every time."""


@dataclass(frozen=True)
class Ending:
    """How an attempt ended.

    level    of the evidence, «none» where nothing was run
    report   number of the expected nonconformance, None where there is none
    """

    status: str
    level: str
    report: str | None = None

    @classmethod
    def of(cls, conclusion: Mapping[str, Any]) -> Ending:
        """From the conclusion of a record."""
        return cls(
            conclusion["status"],
            conclusion["evidence_level"] or "none",
            conclusion["expected_nonconformance"],
        )

    @property
    def unexpected(self) -> bool:
        """Does it make a run red?"""
        return self.status in ("failed", "blocked") and self.report is None

    @property
    def severity(self) -> tuple[int, bool, int]:
        """Small is bad; of two failures the unexpected one is the worse, of two passes the one that shows less."""
        level = LEVELS.index(self.level) if self.level in LEVELS else -1
        return SEVERITY.index(self.status), not self.unexpected, level

    def differs(self, other: Ending) -> bool:
        """Other status, or another defect: levels may differ, as machines do."""
        return (self.status, self.report) != (other.status, other.report)


class Tally:
    """The worst ending of every test, and which tests ended differently in different attempts."""

    def __init__(self) -> None:
        self.worst: dict[str, Ending] = {}
        self.unexpected: set[str] = set()
        self._differing: set[str] = set()

    def add(self, nodeid: str, ending: Ending) -> None:
        """One attempt, the first or a further one."""
        known = self.worst.get(nodeid)
        if ending.unexpected:
            self.unexpected.add(nodeid)
        if known is not None and known.differs(ending):
            self._differing.add(nodeid)
        if known is None or ending.severity < known.severity:
            self.worst[nodeid] = ending

    @property
    def counts(self) -> dict[str, int]:
        """Tests by status; the sum is the number of tests, not of attempts."""
        found = Counter(ending.status for ending in self.worst.values())
        return {status: found[status] for status in ("ok", "failed", "blocked", "skipped")}

    @property
    def flaky(self) -> list[str]:
        """Tests of which one attempt ended otherwise than another."""
        return sorted(self._differing)


def worst_of(records: Iterable[R]) -> list[R]:
    """One record a test, in the order of the first attempts: the worst of its attempts, which stands for it."""
    found: dict[str, R] = {}
    for record in records:
        nodeid = record["identity"]["nodeid"]
        known = found.setdefault(nodeid, record)
        if Ending.of(record["conclusion"]).severity < Ending.of(known["conclusion"]).severity:
            found[nodeid] = record
    return list(found.values())


def numbered(attempt: int) -> dict[str, int]:
    """The field of a record that tells a second or later attempt; a first one has none."""
    return {"attempt": attempt} if attempt > 1 else {}


def wrongly_numbered(seen: Mapping[str, list[int]]) -> Iterator[tuple[str, list[int]]]:
    """Tests whose attempts are not 1, 2, … in this order."""
    for nodeid, attempts in sorted(seen.items()):
        if attempts != list(range(1, len(attempts) + 1)):
            yield nodeid, attempts
