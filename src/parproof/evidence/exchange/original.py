"""Reading a foreign file: bounded, strict, never changed. Its bytes are taken once, and the digest is of these bytes."""

from __future__ import annotations

import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parproof.evidence.audit.reading import MAX_FILE_BYTES, BadJson, parse
from parproof.evidence.exchange.assessment import NotFinite

MAX_DOCUMENTS = 10_000


class Unreadable(Exception):
    """A file of which nothing can be said; the message says why."""


@dataclass(frozen=True)
class Original:
    """A file as it was read. documents: the JSON in it, one or one a line; when there is none, why not, and the text."""

    path: Path
    sha256: str
    num_bytes: int
    documents: tuple[Any, ...]
    text: str
    why: str


def read(path: Path) -> Original:
    """Errors: Unreadable."""
    data = _bytes(path)
    digest = hashlib.sha256(data).hexdigest()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8: {error.reason} at byte {error.start}") from error
    if not text.strip():
        raise Unreadable("empty")
    if "\0" in text:
        raise Unreadable("holds NUL bytes")
    documents: tuple[Any, ...] = ()
    why = ""
    if text.lstrip()[0] in "{[":
        documents, why = _documents(data)
    return Original(path, digest, len(data), documents, text, why)


def _bytes(path: Path) -> bytes:
    """At most MAX_FILE_BYTES of a regular file: no link, no pipe that never ends."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("a link, a directory or a special file")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise Unreadable(getattr(error, "strerror", None) or str(error)) from error
    if len(data) > MAX_FILE_BYTES:
        raise Unreadable(f"more than {MAX_FILE_BYTES} bytes")
    return data


def _documents(data: bytes) -> tuple[tuple[Any, ...], str]:
    """The JSON of the file: whole, or one document a line; else nothing and why."""
    try:
        return (parse(data, constant=NotFinite),), ""
    except BadJson as error:
        why = str(error)
    lines = [line for line in data.split(b"\n", MAX_DOCUMENTS + 1) if line.strip()]
    if len(lines) < 2 or len(lines) > MAX_DOCUMENTS:
        return (), why
    try:
        return tuple(parse(line, constant=NotFinite) for line in lines), ""
    except BadJson:
        return (), why
