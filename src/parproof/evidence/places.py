"""Texts without this machine's places: a record is read elsewhere, and a path tells who ran it."""

from __future__ import annotations

import functools
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path


@functools.cache
def without_places(root: Path) -> Callable[[str], str]:
    """A function that names the checkout, the environment, the temporary and the home folder in their stead.

    The longest path is replaced first. What lies beside the root (`../../x/test_a.py`) keeps its last folder.
    """
    known = {str(root): "<root>", sys.prefix: "<environment>", tempfile.gettempdir(): "<tmp>"}
    known |= {str(Path.home()): "<home>", str(Path(__file__).resolve().parents[1]): "<parproof>"}
    paths = sorted((path for path in known if len(path) > 1), key=len, reverse=True)
    pattern = re.compile("|".join(rf"(?<![\w.-]){re.escape(path)}(?![\w-]|\.\w)" for path in paths))
    outside = re.compile(r"(?<![\w./])(?:\.\./)+(?:[^\s:/]+/)*?((?:[^\s:/]+/)?[^\s:/]+\.py)\b")

    def replaced(text: str) -> str:
        if "/" not in text:  # most texts of a record: no path is in them
            return text
        return outside.sub(r"<outside>/\1", pattern.sub(lambda found: known[found.group()], text))

    return replaced
