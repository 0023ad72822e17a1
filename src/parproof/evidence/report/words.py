"""The words of the page, one catalogue a language: templates, scripts and charts take every word from here."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

from parproof.errors import UsageError

LANGUAGES = ("en", "zh")


@functools.cache
def catalogue(lang: str) -> dict[str, str]:
    """Key → text with {named} places. Errors: UsageError for a language without a catalogue."""
    if lang not in LANGUAGES:
        raise UsageError(f"no words in {lang!r}", expected=f"one of {', '.join(LANGUAGES)}", where="report")
    path = resources.files(__package__).joinpath("words", f"{lang}.json")
    found: dict[str, str] = json.loads(path.read_text("utf-8"))
    return found


class Words:
    """`words(key, n=3)`: the text of a key in one language; a key that is not there is an error."""

    def __init__(self, lang: str) -> None:
        self.lang = lang
        self._texts = catalogue(lang)

    def __call__(self, key: str, **values: Any) -> str:
        """With n=1 it takes the key's «.one» where there is one."""
        # Plain str: autoescape still sees whatever was put into the places.
        text = self._texts[f"{key}.one" if values.get("n") == 1 and f"{key}.one" in self._texts else key]
        if not values:
            return text
        return text.format(**{name: self.number(value) for name, value in values.items()})

    def has(self, key: str) -> bool:
        """Whether there are words for a key that is made of data, such as a level."""
        return key in self._texts

    def number(self, value: Any) -> Any:
        """Thousands apart; everything but a whole number as it is."""
        return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value

    def cut(self, shown: int, total: int) -> str:
        """«n of m shown»."""
        return self("cut", shown=shown, total=total)

    def for_script(self) -> dict[str, str]:
        """What the script needs, without the prefix."""
        return {key.removeprefix("js."): text for key, text in self._texts.items() if key.startswith("js.")}
