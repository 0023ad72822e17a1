"""Words that somebody else wrote, made fit for a terminal and for Markdown."""

from __future__ import annotations

MAX_TEXT = 200


def shown(value: object, limit: int = MAX_TEXT) -> str:
    """Printable, on one line, of bounded length: a name must not steer a terminal or fill it."""
    text = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value)[: 4 * limit]
    )
    return text if len(text) <= limit else text[: limit - 2] + " …"


def code(value: object) -> str:
    """A Markdown code span in a table cell: no back-tick ends it, no bar splits the cell."""
    return "`" + shown(value).replace("`", "'").replace("|", "\\|") + "`"


def cell(value: object) -> str:
    """Plain words in a Markdown table cell: no mark-up, no HTML."""
    text = shown(value, 600)
    for mark in ("\\", "|", "`", "*", "_", "[", "]", "~"):
        text = text.replace(mark, "\\" + mark)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
