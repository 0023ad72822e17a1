"""Counts over all tests and records, what was skipped and why, what failed, and which defects were known."""

from __future__ import annotations

import functools
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from parproof.evidence.attempts import Ending
from parproof.evidence.level import LEVELS, SCOPES, may_claim_performance
from parproof.evidence.report.gather import status_of
from parproof.evidence.report.tested import AttemptsByTest

MAX_ROWS = 100
_REPORT = re.compile(r"(pytorch|torchtitan)(?: PR)?#([0-9]{1,7})")


@dataclass
class Defect:
    """Tests that found one known defect."""

    report: str
    nodeids: set[str] = field(default_factory=set)
    claims: set[str] = field(default_factory=set)
    seen: str = ""

    @property
    def count(self) -> int:
        """Tests."""
        return len(self.nodeids)

    @property
    def address(self) -> str | None:
        """Where the public report is; only for names of a form we know, so that no word of a record is a link."""
        found = _REPORT.fullmatch(self.report)
        return f"https://github.com/pytorch/{found[1]}/issues/{found[2]}" if found else None


@dataclass
class Totals:
    """What is counted; `add` sees every record once.

    tested            which tests there are; whoever collects adds each record to it
    levels, scopes    of records
    """

    tested: AttemptsByTest
    num_records: int = 0
    levels: Counter[str] = field(default_factory=Counter)
    scopes: Counter[str] = field(default_factory=Counter)
    defects: dict[str, Defect] = field(default_factory=dict)
    num_other_decisions: int = 0
    _skips: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    _failures: dict[str, dict[str, Any]] = field(default_factory=dict)
    _failed: set[str] = field(default_factory=set)

    def add(self, record: dict[str, Any]) -> None:
        """Count a record."""
        end, status = record["conclusion"], status_of(record)
        self.num_records += 1
        self.levels[end["evidence_level"] or "none"] += 1
        self.scopes[record["topology"]["scope"] or "none"] += 1
        self.num_other_decisions += end["decision"] != "pending"
        if status == "skipped" and end["skip"]:
            skip = end["skip"]
            why = skip["requirement"], skip["found"] or skip["reason"], skip["how"]
            self._skips.setdefault(record["identity"]["nodeid"], why)
        elif status == "known":
            self._defect(record)
        elif status in ("failed", "blocked"):
            self._failure(record, status)

    def _failure(self, record: dict[str, Any], status: str) -> None:
        """A row for each test: its worst attempt, the first of equal ones."""
        nodeid, severity = record["identity"]["nodeid"], Ending.of(record["conclusion"]).severity
        self._failed.add(nodeid)
        known = self._failures.get(nodeid)
        if len(self._failures) < MAX_ROWS if known is None else severity < known["severity"]:
            self._failures[nodeid] = _failure(record, status) | {"severity": severity}

    def _defect(self, record: dict[str, Any]) -> None:
        end, identity = record["conclusion"], record["identity"]
        name = end["expected_nonconformance"]
        defect = self.defects.setdefault(name, Defect(name))
        defect.nodeids.add(identity["nodeid"])
        defect.claims |= {f"{identity['semantic_id']}/{claim}" for claim in identity["claims"]}
        defect.seen = defect.seen or (end["failure"] or {"message": ""})["message"].partition("\n")[0]

    @functools.cached_property
    def counts(self) -> Counter[str]:
        """Tests by status; complete when every record was seen."""
        return self.tested.counts()

    @property
    def skips(self) -> Counter[tuple[str, str, str]]:
        """Why tests were skipped that count as skipped: the reason of the first such attempt."""
        worst = self.tested.tally.worst
        return Counter(why for nodeid, why in self._skips.items() if worst[nodeid].status == "skipped")

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Tests that failed without being a known defect, or were blocked; at most MAX_ROWS."""
        return list(self._failures.values())

    @property
    def num_failures(self) -> int:
        """All of them, those included whose other attempts were ok."""
        return len(self._failed)

    @property
    def num_benchmarks(self) -> int:
        """Records from which anything about performance may be read."""
        return sum(number for level, number in self.levels.items() if may_claim_performance(level))

    def by_level(self) -> list[tuple[str, int]]:
        """Tests, from the strongest to none."""
        levels = self.tested.levels()
        return [(name, levels[name]) for name in (*LEVELS[::-1], "none") if levels[name]]

    def by_scope(self) -> list[tuple[str, int]]:
        """Records, from the widest to none."""
        return [(name, self.scopes[name]) for name in (*SCOPES[::-1], "none") if self.scopes[name]]

    def shown_skips(self) -> list[tuple[tuple[str, str, str], int]]:
        """The most frequent first."""
        return self.skips.most_common(MAX_ROWS)

    def shown_defects(self) -> list[Defect]:
        """The most frequent first; what nobody has reported last."""
        found = sorted(self.defects.values(), key=lambda d: (d.address is None, -d.count, d.report))
        return found[:MAX_ROWS]


def _failure(record: dict[str, Any], status: str) -> dict[str, Any]:
    told = record["conclusion"]["failure"] or {"type": "", "message": "", "rank": None, "phase": ""}
    return {
        "sequence": record["sequence"],
        "nodeid": record["identity"]["nodeid"],
        "status": status,
        "type": told["type"],
        "rank": told["rank"],
        "phase": told["phase"],
        "message": told["message"],
    }
