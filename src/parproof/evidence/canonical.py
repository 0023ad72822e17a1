"""One byte form for one meaning: what is hashed is written this way."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parproof.errors import UsageError

MAX_INTEGER = 10**19
GENESIS = "0" * 64


def dumps(value: Any) -> str:
    """JSON with sorted keys and no spaces. Errors: ValueError for NaN and infinity, which are not JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """sha256 of the canonical form."""
    return hashlib.sha256(dumps(value).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """sha256 of a file's bytes, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def plain(value: Any, where: str, text: Callable[[str], str] = str) -> Any:
    """The value as JSON holds it, so that writing and reading give the same: str names, lists, finite numbers.

    text     applied to every string that is no name
    Errors   UsageError for a tensor, a set, NaN, … : evidence keeps what was measured, not what happens to print
    """
    try:
        return _plain(value, text)
    except _NotPlainError as found:
        raise UsageError(
            found.observed,
            expected=found.expected,
            where=where + "".join(reversed(found.path)),
            next_step=found.next_step,
        ) from None


class _NotPlainError(Exception):
    """Something that JSON cannot hold. Its path is put together on the way out: most values need none."""

    def __init__(self, observed: str, expected: str, next_step: str = "") -> None:
        self.observed, self.expected, self.next_step = observed, expected, next_step
        self.path: list[str] = []
        self.is_a_name = False  # then the dict it is in is the place


def _plain(value: Any, text: Callable[[str], str]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        given = text(str(value))
        return given if given.isascii() else given.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, (dict, list, tuple)):
        return _members(value, text)
    if isinstance(value, int) and abs(value) < MAX_INTEGER:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    raise _NotPlainError(
        f"{type(value).__name__} {str(value)[:60]}",
        "plain data: finite numbers, strings, lists, dicts, None",
        "pass .item() or .tolist() of a tensor; a value that is not finite is no measurement",
    )


def _members(value: dict[Any, Any] | list[Any] | tuple[Any, ...], text: Callable[[str], str]) -> Any:
    key: Any = None
    try:
        if isinstance(value, dict):
            named = {}
            for key, item in value.items():
                named[_name(key)] = _plain(item, text)
            return named
        made = []
        for key, item in enumerate(value):  # noqa: B007
            made.append(_plain(item, text))
        return made
    except _NotPlainError as found:
        if not found.is_a_name:
            found.path.append(f".{key}" if isinstance(value, dict) else f"[{key}]")
        found.is_a_name = False
        raise


def _name(key: Any) -> str:
    if type(key) is str and key.isascii():
        return key
    if isinstance(key, (str, int)) and not isinstance(key, bool):
        return str(_plain(str(key), str))
    found = _NotPlainError(f"name {key!r}", "a string or an integer")
    found.is_a_name = True
    raise found
