"""Words of somebody else on their way to a page: every character is seen, and none runs on for ever.

Escaping for HTML is the template's business (autoescape), for JSON in a script that of `packed`. This module sees to
what escaping leaves in place: characters that reorder, hide or steer, and sheer length.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

MAX_TEXT = 4_000  # characters of one string that are shown
MAX_ITEMS = 300  # entries of one list or object
MAX_VALUES = 6_000  # values of one field of a record
MAX_FIELD_TEXT = 60_000  # characters of one field of a record

EXACT_IN_SCRIPT = 2**53 - 1  # a script has float64 only: a larger whole number travels as text

# (shown, total) → the words for «not everything is shown»
Note = Callable[[int, int], str]


def visible(text: str, keep: str = "") -> str:
    """The text with each character that does not print as its escape: bidi overrides, controls, zero widths.

    keep   characters that stay as they are, such as the line break in a traceback
    """
    if text.isprintable():
        return text
    return "".join(c if c in keep or _prints(c) else c.encode("unicode_escape").decode() for c in text)


def _prints(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def cut(text: str, note: Note, limit: int = MAX_TEXT) -> str:
    """At most `limit` characters, and what was left out said."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} … [{note(limit, len(text))}]"


@dataclass
class _Budget:
    values: int = MAX_VALUES
    text: int = MAX_FIELD_TEXT

    @property
    def spent(self) -> bool:
        """Nothing more is taken."""
        return self.values <= 0 or self.text <= 0


def cleaned(value: Any, note: Note) -> Any:
    """A copy of plain JSON that may be embedded: visible text, bounded strings, lists, objects and sum of all.

    Cost   a pass over what is kept; what is cut is not looked at
    """
    return _cleaned(value, note, _Budget())


def _cleaned(value: Any, note: Note, budget: _Budget) -> Any:
    budget.values -= 1
    if isinstance(value, str):
        return _text(value, note, budget)
    if isinstance(value, int) and abs(value) > EXACT_IN_SCRIPT:
        return str(value)
    if isinstance(value, Mapping):
        return _object(value, note, budget)
    if isinstance(value, (list, tuple)):
        found: list[Any] = []
        for item in value:
            if len(found) == MAX_ITEMS or budget.spent:
                found.append(f"… {note(len(found), len(value))}")
                break
            found.append(_cleaned(item, note, budget))
        return found
    return value


def _object(value: Mapping[str, Any], note: Note, budget: _Budget) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, item in value.items():
        if len(found) == MAX_ITEMS or budget.spent:
            found["…"] = note(len(found), len(value))
            break
        found[_text(str(name), note, budget)] = _cleaned(item, note, budget)
    return found


def _text(text: str, note: Note, budget: _Budget) -> str:
    limit = max(0, min(MAX_TEXT, budget.text))
    budget.text -= min(len(text), limit)
    return visible(cut(text, note, limit), keep="\n\t")
