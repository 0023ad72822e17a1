"""Records for the script of the page: a small index of all, details in chunks that are parsed when one is opened.

What many records hold alike (placements, reasons) is written once and referred to: `{"\\u0000": number}`. No word of a
record can pass for a reference: in cleaned text a NUL is written as its escape.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from markupsafe import Markup

from parproof.evidence import ledger_summary
from parproof.evidence.level import LEVELS
from parproof.evidence.report.cleaning import Note, cleaned, cut, visible
from parproof.evidence.report.gather import STATUSES, status_of
from parproof.evidence.report.matrix import Matrix

PER_CHUNK = 100
MAX_DETAILS = 20_000  # beyond it the page would be too large to open; the index holds every record
MAX_DETAIL_TEXT = 100_000_000  # characters of all details before what they share is taken out
MAX_BRIEF = 200
_FIXED = (
    "identity",
    "provenance",
    "origin",
    "topology",
    "communication",
    "time",
    "load",
    "conclusion",
    "observation",
)
_SHARED_FROM = 28  # characters from which a repeated value is worth a reference
_SHARED_DEPTH = 3
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def script_json(value: Any) -> Markup:
    """JSON that may stand in a script element: nothing in it ends the element or a line."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


class Packed:
    """Collects records; `index` and `chunks` are what the page embeds."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._files: dict[str, int] = {}
        self._briefs: dict[str, int] = {"": 0}
        self._tests: dict[str, int] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._details: list[Any] = []
        self._size = 0
        self._repeats: Counter[str] = Counter()

    def add(self, record: dict[str, Any], place: tuple[int, list[int], int]) -> None:
        """A record and its place in the matrix."""
        group, rows, column = place
        path, _, name = record["identity"]["nodeid"].partition("::")
        level = record["conclusion"]["evidence_level"]
        self._rows.append(
            (
                record["sequence"],
                self._files.setdefault(self._short(path), len(self._files)),
                self._short(name),
                STATUSES.index(status_of(record)),
                group,
                rows if len(rows) > 1 else rows[0],
                column,
                LEVELS.index(level) + 1 if level else 0,
                self._briefs.setdefault(self._short(_brief(record)), len(self._briefs)),
                self._tests.setdefault(record["identity"]["nodeid"], len(self._tests)),
                record.get("attempt", 1),
            )
        )
        if len(self._details) < MAX_DETAILS and self._size < MAX_DETAIL_TEXT:
            # Each field on its own: one that is too long must not cost the others their place.
            detail = {
                part: {name: cleaned(value, self._note) for name, value in fields.items()}
                if part in _FIXED and fields is not None
                else cleaned(fields, self._note)
                for part, fields in _detail(record).items()
            }
            self._size += len(_key(detail))
            self._details.append(detail)
            self._count(detail, 0)

    def _short(self, text: str) -> str:
        return visible(cut(text, self._note, MAX_BRIEF))

    def _count(self, value: Any, depth: int) -> None:
        for child in _children(value):
            if isinstance(child, str):
                if len(child) >= _SHARED_FROM:
                    self._repeats[_key(child)] += 1
            elif isinstance(child, (dict, list)) and child and depth < _SHARED_DEPTH:
                self._repeats[_key(child)] += 1
                self._count(child, depth + 1)

    def index(self, matrix: Matrix) -> dict[str, Any]:
        """Columns of the list of records, and the names that its numbers stand for."""
        groups: list[Any] = [None] * len(matrix.numbers)
        for number, group in matrix.groups():
            columns = [[self._short(part) for part in column] for column in group.columns]
            rows = [self._short(row) for row in group.rows]
            groups[number] = {"id": self._short(group.id), "rows": rows, "columns": columns}
        return {
            "rows": self._rows,
            "files": list(self._files),
            "briefs": list(self._briefs),
            "groups": groups,
            "statuses": STATUSES,
            "levels": ["", *LEVELS],
            "perChunk": PER_CHUNK,
            "numDetails": len(self._details),
        }

    def chunks(self) -> tuple[list[Any], list[list[Any]]]:
        """(what is shared, details in chunks)."""
        shared: list[Any] = []
        numbers: dict[str, int] = {}

        def packed(value: Any, depth: int) -> Any:
            if depth and value and isinstance(value, (str, dict, list)) and depth <= _SHARED_DEPTH:
                key = _key(value)
                if len(key) >= _SHARED_FROM and self._repeats[key] > 1:
                    if key not in numbers:
                        numbers[key] = len(shared)
                        shared.append(value)
                    return {"\0": numbers[key]}
            if isinstance(value, dict):
                return {name: packed(item, depth + 1) for name, item in value.items()}
            if isinstance(value, list):
                return [packed(item, depth + 1) for item in value]
            return value

        rows = [packed(detail, 0) for detail in self._details]
        return shared, [rows[first : first + PER_CHUNK] for first in range(0, len(rows), PER_CHUNK)]


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _key(value: Any) -> str:
    return f'"{value}' if isinstance(value, str) else _ENCODER.encode(value)


def _brief(record: dict[str, Any]) -> str:
    """One line that says why a record is not ok."""
    end = record["conclusion"]
    if end["skip"]:
        return str(end["skip"]["found"] or end["skip"]["reason"]).partition("\n")[0]
    if end["failure"]:
        known = end["expected_nonconformance"]
        first = str(end["failure"]["message"]).partition("\n")[0]
        return f"{known}: {first}" if known else first
    return ""


def _detail(record: dict[str, Any]) -> dict[str, Any]:
    """The record without what the index has, tables as rows, and the comparison that the audit makes."""
    told, observation = dict(record["communication"]), record["observation"]
    told["compared"] = None
    if told["predicted"] is not None:
        lines = ledger_summary.compared(told["ledger"] or (), told["predicted"])
        told["compared"] = [list(line) for line in lines]
    told["predicted"] = told["predicted"] and {name: told["predicted"][name] for name in ("rank", "within")}
    if told["ledger"] is not None:
        names = ("phase", "op", "dtype", "group_size", "control", "calls", "in_bytes", "out_bytes", "ranks")
        told["ledger"] = [[line[name] for name in names] for line in told["ledger"]]
    if observation is not None:
        kept = ("launcher", "backend", "world_size", "host_kind", "num_reports", "calls_seen", "problems")
        runs = [*observation["runs"], *observation["failed_runs"]]
        brief = [{name: run[name] for name in kept if name in run} for run in runs]
        observation = {k: v for k, v in observation.items() if k not in ("runs", "failed_runs")}
        observation["runs"] = brief
    topology = dict(record["topology"])
    if topology["ranks"] is not None:
        facts = ("rank", "local_rank", "host", "hostname", "device", "pid")
        topology["ranks"] = [[rank[name] for name in facts] for rank in topology["ranks"]]
    parts = ("identity", "time", "load", "conclusion", "measurements", "provenance", "not_collected")
    return {name: record[name] for name in parts} | {
        "origin": record.get("origin"),
        "communication": told,
        "topology": topology,
        "observation": observation,
    }
