"""Rules about files: the manifest binds every file by size and digest, and nothing else is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parproof.evidence import canonical, traces
from parproof.evidence.audit.findings import Finding, Unusable, declare
from parproof.evidence.audit.opening import (
    MAX_EVIDENCE_BYTES,
    digest_of,
    entries,
    open_regular,
    read_at_most,
    size_of,
)
from parproof.evidence.audit.reading import BadJson
from parproof.evidence.store import ENVIRONMENT, MANIFEST, RECORDS

FILES = declare(
    "files-bound",
    "Every file is in the manifest with its size and sha256, no other file is there, and none is a link.",
    "files-bound",
)
MANIFEST_BOUND = declare(
    "manifest-bound", "The manifest carries its own digest and is in canonical form.", "manifest-bound"
)
TRACES = declare(
    "trace-kept", "A trace that a record rests on is in the directory and can be opened again.", "trace-kept"
)


def check_files(directory: Path, manifest: dict[str, Any]) -> Iterator[Finding]:
    """Sizes, digests and what else is there. The records' digest is taken while they are read: see `check_digest`.

    Errors   Unusable when there are more files than any evidence has
    """
    found, listed, rest = entries(directory), manifest["files"], MAX_EVIDENCE_BYTES
    for name in (RECORDS, ENVIRONMENT):
        if name not in listed:
            yield Finding(FILES, name, "a whole evidence directory", "not in the manifest")
    for name in sorted(set(found) - set(listed) - {MANIFEST}):
        yield Finding(FILES, name, "part of the evidence", "not in the manifest")
    for name, bound in sorted(listed.items()):
        if name not in found:
            yield Finding(FILES, name, f"{bound['bytes']} bytes", "no such file")
        elif not found[name]:
            yield Finding(FILES, name, "a file", "a link or a special file")
        elif (rest := rest - bound["bytes"]) < 0:
            yield Finding(FILES, name, f"{bound['bytes']} bytes", "more evidence than is read")
        else:
            yield from _check_file(directory, name, bound)


def _check_file(directory: Path, name: str, bound: dict[str, Any]) -> Iterator[Finding]:
    try:
        with open_regular(directory, name) as file:
            size = size_of(file)
            if size != bound["bytes"]:
                yield Finding(FILES, name, f"{bound['bytes']} bytes", f"{size} bytes")
            elif name != RECORDS:
                yield from check_digest(name, bound, digest_of(file, size))
    except (Unusable, OSError) as error:
        # It was there a moment ago, or may not be read.
        yield Finding(FILES, name, "a file that can be read", str(error))


def check_digest(name: str, bound: dict[str, Any], digest: str) -> Iterator[Finding]:
    """What was read is what was bound."""
    if digest != bound["sha256"]:
        yield Finding(FILES, name, f"sha256 {bound['sha256'][:12]}", digest[:12])


def check_manifest(data: bytes, manifest: dict[str, Any], digest: str | None) -> Iterator[Finding]:
    """The manifest binds itself: its digest, and the one byte form that has it. A digest from elsewhere binds all."""
    if digest is not None and digest != manifest["digest"]:
        claimed = f"the run with digest {digest[:12]}"
        yield Finding(MANIFEST_BOUND, MANIFEST, claimed, f"digest {manifest['digest'][:12]}")
    rest = {name: value for name, value in manifest.items() if name != "digest"}
    if manifest["digest"] != canonical.digest(rest):
        claimed = f"digest {manifest['digest'][:12]}"
        yield Finding(MANIFEST_BOUND, MANIFEST, claimed, canonical.digest(rest)[:12])
    elif data != (canonical.dumps(manifest) + "\n").encode():
        yield Finding(MANIFEST_BOUND, MANIFEST, "the canonical form", "other bytes of the same meaning")


class Traces:
    """Its name is its digest; «it was profiled» without the trace is a word."""

    def __init__(self, directory: Path, manifest: dict[str, Any]) -> None:
        self._directory = directory
        self._bound = manifest["files"]
        self._judged: dict[str, str] = {}

    def check(self, record: dict[str, Any], name: str) -> Iterator[Finding]:
        """Each trace that the record rests on; one that many name is opened once."""
        for digest in (record["observation"] or {"traces": ()})["traces"]:
            bound = self._bound.get(traces.name_of(digest), {})
            wrong = "no such file in the manifest"
            if bound.get("sha256") == digest:
                wrong = self._judged.get(digest) or self._judge(digest)
                self._judged[digest] = wrong
            if wrong != _OPENS:
                yield Finding(TRACES, name, f"a trace {digest[:12]}", wrong)

    def _judge(self, digest: str) -> str:
        try:
            with open_regular(self._directory, traces.name_of(digest)) as file:
                data = read_at_most(file, traces.MAX_BYTES, "the trace")
            found = traces.count_events(data)
        except (Unusable, BadJson) as error:
            return str(error) or "not JSON"
        return _OPENS if found else "no event that can be read"


_OPENS = "opens"
