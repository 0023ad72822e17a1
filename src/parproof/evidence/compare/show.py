"""A comparison for people: a short table, worst first, for a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from parproof.evidence.compare.traffic import label
from parproof.evidence.compare.words import cell, code, shown
from parproof.evidence.markdown import table

MAX_ROWS = 20
Document = Mapping[str, Any]


def text(document: Document) -> str:
    """For a terminal."""
    lines = [*_head(document, _line), ""]
    for title, _, rows, total in _tables(document):
        lines.append(f"{title}:")
        lines += ["  " + "  ".join(_padded(row, rows)) for row in rows]
        lines += [*_rest(total, len(rows), "  "), ""]
    return "\n".join([*lines, *_end(document, _line)])


def markdown(document: Document) -> str:
    """For the summary of a CI job."""
    lines = [f"## Comparison: {document['decision']['decision']}", ""]
    lines += [*(f"- {line}" for line in _head(document, cell)), ""]
    for title, columns, rows, total in _tables(document):
        cells = [(*map(cell, row[:-1]), code(row[-1])) for row in rows]
        lines += [f"### {title[0].upper()}{title[1:]}", "", *table(columns, cells)]
        lines += ["", *_rest(total, len(rows), "")]
    return "\n".join([*lines, "", *(f"- {line}" for line in _end(document, cell))])


def _line(value: object) -> str:
    return shown(value, 600)


def _head(document: Document, words: Callable[[object], str]) -> Iterator[str]:
    for side in ("baseline", "candidate"):
        runs = document[side]
        names = ", ".join(
            f"{words(run['run_label'] or run['started'])} ({run['digest'][:12]})" for run in runs
        )
        yield f"{side}: {len(runs)} run{'s' * (len(runs) > 1)}: {names}"
    for told in document["varied"]:
        yield f"differs: {words(told['name'])}: {words(told['baseline'])} → {words(told['candidate'])}"
    number = document["num_tests"]
    equal = "all else equal" if document["varied"] else "nothing differs"
    yield f"{number['both']} tests on both sides, {number['traffic']} with traffic, {len(document['times'])} timings; {equal}"


Rows = list[tuple[str, ...]]


def _tables(document: Document) -> Iterator[tuple[str, tuple[str, ...], Rows, int]]:
    """(title, columns, rows, how many there are); the last cell of a row is the name of a test."""
    changes = document["changes"]
    if changes:
        rows: Rows = [
            (
                "WORSE" if c["regression"] else "changed",
                f"{c['baseline']} → {c['candidate']}",
                _short(c["name"]),
            )
            for c in changes[:MAX_ROWS]
        ]
        yield "outcomes and levels that changed", ("", "baseline → candidate", "test"), rows, len(changes)
    if document["traffic"]:
        rows = [_traffic_row(c) for c in document["traffic"][:MAX_ROWS]]
        columns: tuple[str, ...] = ("change", "messages", "all ranks", "test")
        yield "traffic that changed", columns, rows, len(document["traffic"])
    if document["times"]:
        rows = [_time_row(one) for one in document["times"][:MAX_ROWS]]
        columns = ("verdict", "factor", "bounds", "bootstrap, alone", "medians", "timing")
        yield "times", columns, rows, len(document["times"])


def _short(name: str) -> str:
    """A node id without its folders: the document has the whole of it."""
    path, colons, rest = name.partition("::")
    return path.rpartition("/")[2] + colons + rest


def _traffic_row(change: Mapping[str, Any]) -> tuple[str, ...]:
    sides = (change["baseline"], change["candidate"])
    told = " → ".join("{} calls, {} B in, {} B out".format(*amounts) for amounts in sides)
    if not change["kind"]:
        told = "not seen whole any more" if change["change"] == "unseen" else "its runs disagree"
    return change["change"], label(change["kind"]), told, _short(change["name"])


def _time_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    name = f"{_short(one['test'])} {one['name']}"
    if one["factor"] is None:
        return one["verdict"], "", "", "", one["reason"], name
    reach = "{:.3g} to {:.3g}".format(*one["bounds"]) if one["bounds"] else one["reason"]
    alone = "{:.3g} to {:.3g}".format(*one["interval"])
    medians = f"{_seconds(one['baseline']['median_s'])} → {_seconds(one['candidate']['median_s'])}"
    notes = [medians, *(["tail is worse"] if one["tail"] else []), *one["drift"]]
    return one["verdict"], f"{one['factor']:.3f}x", reach, alone, "; ".join(notes), name


def _seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def _padded(row: Sequence[str], rows: Rows) -> list[str]:
    """Columns line up; the last one is as long as it is."""
    widths = [max(len(shown(other[place])) for other in rows) for place in range(len(row) - 1)]
    return [*(shown(value).ljust(width) for value, width in zip(row, widths, strict=False)), shown(row[-1])]


def _rest(total: int, number: int, indent: str) -> list[str]:
    return [f"{indent}… and {total - number} more (--json has all)"] if total > number else []


def _end(document: Document, words: Callable[[object], str]) -> Iterator[str]:
    settings = document["settings"]
    if document["times"]:
        yield (
            f"threshold {settings['threshold']:.3g}; all bounds hold together with {1 - settings['alpha']:.3g} on"
            f" either side; they cover {document['covers']}; they do not cover {document['does_not_cover']}"
        )
    if document["times"] and not document["interleaved"]:
        yield "one side was made before the other: what changed on the machine in between looks like the factor"
    undecided = document["gate"]["found"]["undecided"]
    if undecided:
        yield f"{undecided} undecided: a regression there is not seen; --fail-on undecided fails on them"
    shift = document["shift"]
    if shift is not None and abs(shift - 1) > settings["threshold"]:
        yield f"the median of all factors is {shift:.3g}: look at the machine before you look at the code"
    yield "not shown: " + "; ".join(map(words, document["not_shown"]))
    end = document["decision"]
    yield f"decision: {end['decision']}: {words(end['reason'])}"
    yield f"next: {words(end['next_action'])}"
    found = ", ".join(f"{number} {kind}" for kind, number in document["gate"]["found"].items())
    asked = ", ".join(document["gate"]["fail_on"]) or "nothing"
    yield f"gate: {'FAILED' if document['gate']['failed'] else 'passed'} (fails on {asked}; found {found})"
