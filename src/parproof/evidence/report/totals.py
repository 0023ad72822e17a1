"""Counts over all records, what was skipped and why, what failed, and which defects were known."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from parproof.evidence.level import LEVELS, SCOPES, may_claim_performance
from parproof.evidence.report.gather import status_of

MAX_ROWS = 100
_REPORT = re.compile(r"(pytorch|torchtitan)(?: PR)?#([0-9]{1,7})")


@dataclass
class Defect:
    """Records that found one known defect."""

    report: str
    count: int = 0
    claims: set[str] = field(default_factory=set)
    seen: str = ""

    @property
    def address(self) -> str | None:
        """Where the public report is; only for names of a form we know, so that no word of a record is a link."""
        found = _REPORT.fullmatch(self.report)
        return f"https://github.com/pytorch/{found[1]}/issues/{found[2]}" if found else None


@dataclass
class Totals:
    """What is counted; `add` sees every record once."""

    counts: Counter[str] = field(default_factory=Counter)
    levels: Counter[str] = field(default_factory=Counter)
    scopes: Counter[str] = field(default_factory=Counter)
    skips: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    defects: dict[str, Defect] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    limits: Counter[str] = field(default_factory=Counter)
    num_failures: int = 0
    num_other_decisions: int = 0

    def add(self, record: dict[str, Any]) -> None:
        """Count a record."""
        end, status = record["conclusion"], status_of(record)
        self.counts[status] += 1
        self.levels[end["evidence_level"] or "none"] += 1
        self.scopes[record["topology"]["scope"] or "none"] += 1
        self.num_other_decisions += end["decision"] != "pending"
        self.limits.update(end["not_shown"])
        if status == "skipped" and end["skip"]:
            skip = end["skip"]
            self.skips[skip["requirement"], skip["found"] or skip["reason"], skip["how"]] += 1
        elif status == "known":
            self._defect(record)
        elif status in ("failed", "blocked"):
            self.num_failures += 1
            if len(self.failures) < MAX_ROWS:
                self.failures.append(_failure(record, status))

    def _defect(self, record: dict[str, Any]) -> None:
        end, identity = record["conclusion"], record["identity"]
        name = end["expected_nonconformance"]
        defect = self.defects.setdefault(name, Defect(name))
        defect.count += 1
        defect.claims |= {f"{identity['semantic_id']}/{claim}" for claim in identity["claims"]}
        defect.seen = defect.seen or (end["failure"] or {"message": ""})["message"].partition("\n")[0]

    @property
    def num_records(self) -> int:
        """All of them."""
        return sum(self.counts.values())

    @property
    def num_benchmarks(self) -> int:
        """Records from which anything about performance may be read."""
        return sum(number for level, number in self.levels.items() if may_claim_performance(level))

    def by_level(self) -> list[tuple[str, int]]:
        """From the strongest to none."""
        return [(name, self.levels[name]) for name in (*LEVELS[::-1], "none") if self.levels[name]]

    def by_scope(self) -> list[tuple[str, int]]:
        """From the widest to none."""
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
