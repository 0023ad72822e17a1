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
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        given = text(str(value))
        return given if given.isascii() else given.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_name(key, where): plain(item, f"{where}.{key}", text) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{place}]", text) for place, item in enumerate(value)]
    if isinstance(value, int) and abs(value) < MAX_INTEGER:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    raise UsageError(
        f"{type(value).__name__} {str(value)[:60]}",
        expected="plain data: finite numbers, strings, lists, dicts, None",
        where=where,
        next_step="pass .item() or .tolist() of a tensor; a value that is not finite is no measurement",
    )


def _name(key: Any, where: str) -> str:
    if type(key) is str and key.isascii():
        return key
    if isinstance(key, (str, int)) and not isinstance(key, bool):
        return str(plain(str(key), where))
    raise UsageError(f"name {key!r}", expected="a string or an integer", where=where)
