"""Reading JSON that somebody else wrote: nothing in it is trusted to be small, shallow, finite or text."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from parproof.evidence.audit.findings import Unusable
from parproof.evidence.audit.opening import MAX_EVIDENCE_BYTES, open_regular, read_at_most, size_of

MAX_LINE_BYTES = 8 * 1024 * 1024
MAX_FILE_BYTES = 32 * 1024 * 1024
MAX_DEPTH = 40
MAX_VALUES = 1_000_000
"""A value of Python takes up to a hundred times the bytes it has as text: `[[],[],…`."""


class BadJson(ValueError):
    """Text that is no JSON we accept; the message says why."""


def parse(
    text: bytes,
    *,
    max_values: int = MAX_VALUES,
    made: Callable[[dict[str, Any]], Any] = lambda found: found,
    constant: Callable[[str], Any] | None = None,
) -> Any:
    """Strict JSON: UTF-8, no duplicate names, no NaN or infinity, no number too large for float64, not too deep.

    max_values   commas and brackets, which bound the memory that the values take
    made         applied to every object as soon as it is read: what it gives back is kept in its stead
    constant     what stands for NaN and infinity, for files whose writers knew no better; by default they are refused
    """

    def pairs(found: list[tuple[str, Any]]) -> Any:
        return made(_no_duplicates(found))

    if text.count(b",") + text.count(b"[") + text.count(b"{") > max_values:
        raise BadJson(f"more than {max_values} values")
    try:
        decoded = text.decode("utf-8")
        value = json.loads(
            decoded,
            object_pairs_hook=pairs,
            parse_constant=constant or _no_constant,
            parse_float=_finite,
            parse_int=_short_integer,
        )
        if "\\u" in decoded:
            # Half of a surrogate pair is no character, and has no bytes to take a digest of.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise BadJson("nested too deeply") from error
    except ValueError as error:
        raise BadJson(str(error)[:200]) from error
    if _depth_exceeds(value, MAX_DEPTH):
        raise BadJson(f"nested more than {MAX_DEPTH} deep")
    return value


def read_bytes(directory: Path, name: str) -> bytes:
    """A small file of the directory. Errors: Unusable."""
    with open_regular(directory, name) as file:
        return read_at_most(file, MAX_FILE_BYTES, name)


def read_json(directory: Path, name: str) -> Any:
    """A small JSON file of the directory. Errors: Unusable."""
    try:
        return parse(read_bytes(directory, name))
    except BadJson as error:
        raise Unusable(f"{name}: {error}") from error


def read_lines(path: Path, seen: hashlib._Hash | None = None) -> Iterator[tuple[int, bytes | None]]:
    """(line number, line); None for a line that is too long, whose rest is passed over.

    seen     is fed every byte, so that what is judged is what was bound
    Errors   Unusable for what is no regular file
    """
    number = 0
    with open_regular(path.parent, path.name) as file:
        rest = size_of(file)  # what is added while we read is not ours to judge
        if rest > MAX_EVIDENCE_BYTES:
            raise Unusable(f"{path.name} has {rest} bytes, more than {MAX_EVIDENCE_BYTES}")
        while rest > 0 and (line := file.readline(min(MAX_LINE_BYTES + 1, rest))):
            number += 1
            rest -= len(line)
            too_long = len(line) > MAX_LINE_BYTES
            if seen is not None:
                seen.update(line)
            while too_long and rest > 0 and line and not line.endswith(b"\n"):
                line = file.readline(min(MAX_LINE_BYTES, rest))
                rest -= len(line)
                if seen is not None:
                    seen.update(line)
            yield number, None if too_long else line


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
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True
