"""The conformance matrix: claim × subject × lane, one table an experiment."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from parproof import registry
from parproof.evidence.attempts import Tally
from parproof.evidence.level import LEVELS
from parproof.evidence.report.gather import STATUSES, shown_status

MAX_COLUMNS, MAX_ROWS, MAX_GROUPS = 16, 120, 60
NO_CLAIM = ""

# lane, name of the subject, its address; empty where the test names none
Column = tuple[str, str, str]


@dataclass
class Cell:
    """Tests of one claim, subject and lane; empty: no record, which is neither good nor bad.

    A test counts once, with the worst of all its attempts, those included that stand in another cell.
    """

    tally: Tally
    nodeids: set[str] = field(default_factory=set)

    @property
    def counts(self) -> Counter[str]:
        """By status."""
        return Counter(shown_status(self.tally.worst[nodeid]) for nodeid in self.nodeids)

    @property
    def levels(self) -> Counter[str]:
        """Of what ran."""
        endings = [self.tally.worst[nodeid] for nodeid in self.nodeids]
        return Counter(ending.level for ending in endings if ending.status != "skipped")

    @property
    def total(self) -> int:
        """Tests."""
        return len(self.nodeids)

    @property
    def tone(self) -> str:
        """The worst there is; ok only where every test is ok."""
        counts = self.counts
        for status in ("failed", "blocked", "known", "skipped"):
            if counts[status]:
                return "part" if status == "skipped" and counts["ok"] else status
        return "ok" if self.total else "none"

    def by_status(self) -> list[tuple[str, int]]:
        """Those that occur, in a fixed order."""
        counts = self.counts
        return [(status, counts[status]) for status in STATUSES if counts[status]]

    def by_level(self) -> list[tuple[str, int]]:
        """Levels of what ran, from the weakest."""
        order = ("none", *LEVELS)
        return sorted(self.levels.items(), key=lambda item: order.index(item[0]))


@dataclass
class Group:
    """One experiment: rows by claim, columns by subject and lane, each with a number that does not change."""

    id: str
    title: str
    statements: dict[str, tuple[str, str]]
    not_shown: str
    total: Cell
    rows: dict[str, int] = field(default_factory=dict)
    columns: dict[Column, int] = field(default_factory=dict)
    cells: dict[tuple[int, int], Cell] = field(default_factory=dict)

    def place(self, claims: list[str], column: Column) -> tuple[list[int], int]:
        """Numbers of rows and column, given out as they come."""
        rows = [self.rows.setdefault(claim, len(self.rows)) for claim in claims or [NO_CLAIM]]
        return rows, self.columns.setdefault(column, len(self.columns))

    def shown_rows(self) -> list[tuple[str, int]]:
        """Registered claims in their order, then others as they came."""
        return list(self.rows.items())[:MAX_ROWS]

    def shown_columns(self) -> list[tuple[Column, int]]:
        """By lane and subject."""
        return sorted(self.columns.items())[:MAX_COLUMNS]

    def cell(self, row: int, column: int) -> Cell:
        """The tests of a place; an empty cell where there are none."""
        return self.cells.get((row, column), Cell(self.total.tally))


class Matrix:
    """Groups in the order of the registry, then what is not registered, then what names no experiment.

    tally   of all tests; whoever collects adds each record to it
    """

    def __init__(self, lang: str, tally: Tally) -> None:
        self._lang, self._tally = lang, tally
        self._groups: dict[str, Group] = {}
        self.numbers: dict[str, int] = {}

    def add(self, record: dict[str, Any]) -> tuple[int, list[int], int]:
        """Place a record; returns the numbers of its group, rows and column."""
        identity = record["identity"]
        name = identity["semantic_id"] or ""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = self._new(name)
            self.numbers[name] = len(self.numbers)
        subject = identity["subject"] or {"name": "", "address": ""}
        column = (identity["lane"] or "", subject["name"], subject["address"])
        rows, number = group.place(identity["claims"], column)
        group.total.nodeids.add(identity["nodeid"])
        for row in rows:
            group.cells.setdefault((row, number), Cell(self._tally)).nodeids.add(identity["nodeid"])
        return self.numbers[name], rows, number

    def _new(self, name: str) -> Group:
        known = registry.load().experiment(name)
        if known is None:
            return Group(name, "", {}, "", Cell(self._tally))
        title = known.title_zh if self._lang == "zh" else known.title
        statements = {claim.id: (claim.tier, claim.statement) for claim in known.claims}
        rows = {claim.id: number for number, claim in enumerate(known.claims)}
        return Group(name, title, statements, known.not_shown, Cell(self._tally), rows)

    def groups(self) -> list[tuple[int, Group]]:
        """(number, group) in the order in which they are shown."""
        order = {experiment.id: place for place, experiment in enumerate(registry.load().experiments)}
        found = sorted(self._groups.values(), key=lambda g: (order.get(g.id, len(order)), not g.id, g.id))
        return [(self.numbers[group.id], group) for group in found]

    def absent(self) -> list[tuple[str, str]]:
        """(id, title) of registered experiments without any record."""
        return [
            (experiment.id, experiment.title_zh if self._lang == "zh" else experiment.title)
            for experiment in registry.load().experiments
            if experiment.id not in self._groups
        ]
