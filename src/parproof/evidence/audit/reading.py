"""Reading files that somebody else wrote: nothing is followed out of the directory, nothing is trusted to be small."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from parproof.evidence.audit.findings import Unusable

MAX_LINE_BYTES = 8 * 1024 * 1024
MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 40


class BadJson(ValueError):
    """Text that is no JSON we accept; the message says why."""


def parse(text: bytes, constant: Callable[[str], Any] | None = None) -> Any:
    """Strict JSON: UTF-8, no duplicate names, no NaN or infinity, no number too large for float64, not too deep.

    constant   what stands for NaN and infinity, for files whose writers knew no better; by default they are refused
    """
    try:
        decoded = text.decode("utf-8")
        value = json.loads(
            decoded,
            object_pairs_hook=_no_duplicates,
            parse_constant=constant or _no_constant,
            parse_float=_finite,
            parse_int=_short_integer,
        )
    except RecursionError as error:
        raise BadJson("nested too deeply") from error
    except ValueError as error:
        raise BadJson(str(error)[:200]) from error
    if _depth_exceeds(value, MAX_DEPTH):
        raise BadJson(f"nested more than {MAX_DEPTH} deep")
    return value


def read_json(directory: Path, name: str) -> Any:
    """A small JSON file of the directory. Errors: Unusable."""
    path = directory / name
    if path.is_symlink() or not path.is_file():
        raise Unusable(f"{name} is missing or no regular file in {directory}")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise Unusable(f"{name} has {path.stat().st_size} bytes, more than {MAX_FILE_BYTES}")
    try:
        return parse(path.read_bytes())
    except (BadJson, OSError) as error:
        raise Unusable(f"{name}: {error}") from error


def read_lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """(line number, line); None for a line that is too long, whose rest is passed over."""
    number = 0
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) <= MAX_LINE_BYTES:
                yield number, line
                continue
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE_BYTES)
            yield number, None


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"number {text[:20]} is too large")
    return value


def _short_integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError(f"integer of {len(text)} digits")
    return int(text)


def _depth_exceeds(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for item in level
            if isinstance(item, (dict, list))
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True
