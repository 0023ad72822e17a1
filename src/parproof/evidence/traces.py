"""Traces kept as artefacts: named by their content, and of use only while they can be opened again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from parproof.errors import UsageError

FOLDER, SUFFIX = "artefacts", ".trace.json"
MAX_BYTES = 64 * 1024 * 1024
_MAX_VALUES = 3_000_000
_COMPLETE: dict[str, Any] = {"ph": "X", "ts": 0, "dur": 0}


def name_of(digest: str) -> str:
    """Where in an evidence directory the trace of this sha256 is."""
    return f"{FOLDER}/{digest}{SUFFIX}"


def num_events(parsed: Any) -> int:
    """Complete events of a Chrome trace; 0 for what is none."""
    events = parsed.get("traceEvents") if isinstance(parsed, dict) else None
    if not isinstance(events, list):
        return 0
    return sum(
        1
        for event in events
        if isinstance(event, dict) and event.get("ph") == "X" and "ts" in event and "dur" in event
    )


def count_events(data: bytes) -> int:
    """Complete events of a Chrome trace, which is opened without being held. Errors: BadJson."""
    from parproof.evidence.audit.reading import parse

    return num_events(parse(data, max_values=_MAX_VALUES, made=_only_what_counts))


def _only_what_counts(found: dict[str, Any]) -> dict[str, Any]:
    if "traceEvents" in found:
        return found
    return _COMPLETE if num_events({"traceEvents": [found]}) else {}


def keep(path: Path, folder: Path | None) -> str:
    """Copy a trace under the name of its content; without a folder only tell its sha256.

    Errors   UsageError when it is too large, or no Chrome trace that can be opened
    """
    from parproof.evidence.audit.reading import BadJson

    data = path.read_bytes()
    try:
        found = count_events(data) if len(data) <= MAX_BYTES else 0
    except BadJson:
        found = 0
    if not found:
        raise UsageError(
            f"{path.name} with {len(data)} bytes holds no trace that can be opened again",
            expected=f"a Chrome trace with complete events, at most {MAX_BYTES} bytes",
            where="evidence.keep_trace",
        )
    digest = hashlib.sha256(data).hexdigest()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{digest}{SUFFIX}").write_bytes(data)
    return digest
