"""Tables of Markdown, for reports, comparisons and the asset table. Cells come escaped, where they have to be."""

from __future__ import annotations

from collections.abc import Iterable


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Its lines."""
    named = list(headings)
    lines = ["| " + " | ".join(named) + " |", "|" + "---|" * len(named)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]
