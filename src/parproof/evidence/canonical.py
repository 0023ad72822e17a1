"""One byte form for one meaning: what is hashed is written this way."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

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
