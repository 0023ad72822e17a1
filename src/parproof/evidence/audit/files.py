"""Rules about files: the manifest binds every file by size and digest, and nothing else is there."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parproof.evidence import canonical, traces
from parproof.evidence.audit.findings import Finding, Unusable, declare
from parproof.evidence.audit.reading import read_json
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
CLOCK = declare("clock-forward", "A run ends after it has started.", "clock-forward")


def check_files(directory: Path, manifest: dict[str, Any]) -> Iterator[Finding]:
    """Nothing outside the directory is opened, whatever a name says."""
    found = {
        p.relative_to(directory).as_posix(): p
        for p in directory.rglob("*")
        if p.is_symlink() or not p.is_dir()
    }
    listed = manifest["files"]
    for name in (RECORDS, ENVIRONMENT):
        if name not in listed:
            yield Finding(FILES, name, "a whole evidence directory", "not in the manifest")
    for name in sorted(set(found) - set(listed) - {MANIFEST}):
        yield Finding(FILES, name, "part of the evidence", "not in the manifest")
    for name, bound in sorted(listed.items()):
        path = found.get(name)
        if path is None:
            yield Finding(FILES, name, f"{bound['bytes']} bytes", "no such file")
        elif path.is_symlink() or not path.is_file():
            yield Finding(FILES, name, "a file", "a link or a special file")
        elif path.stat().st_size != bound["bytes"]:
            yield Finding(FILES, name, f"{bound['bytes']} bytes", f"{path.stat().st_size} bytes")
        elif canonical.file_digest(path) != bound["sha256"]:
            yield Finding(FILES, name, f"sha256 {bound['sha256'][:12]}", canonical.file_digest(path)[:12])


def check_manifest(directory: Path, manifest: dict[str, Any], digest: str | None) -> Iterator[Finding]:
    """The manifest binds itself: its digest, and the one byte form that has it. A digest from elsewhere binds all."""
    if digest is not None and digest != manifest["digest"]:
        claimed = f"the run with digest {digest[:12]}"
        yield Finding(MANIFEST_BOUND, MANIFEST, claimed, f"digest {manifest['digest'][:12]}")
    rest = {name: value for name, value in manifest.items() if name != "digest"}
    if manifest["digest"] != canonical.digest(rest):
        claimed = f"digest {manifest['digest'][:12]}"
        yield Finding(MANIFEST_BOUND, MANIFEST, claimed, canonical.digest(rest)[:12])
    elif (directory / MANIFEST).read_bytes() != (canonical.dumps(manifest) + "\n").encode():
        yield Finding(MANIFEST_BOUND, MANIFEST, "the canonical form", "other bytes of the same meaning")


def check_trace(
    directory: Path, manifest: dict[str, Any], record: dict[str, Any], name: str
) -> Iterator[Finding]:
    """Its name is its digest; «it was profiled» without the trace is a word."""
    for digest in (record["observation"] or {"traces": ()})["traces"]:
        path = directory / traces.name_of(digest)
        bound = manifest["files"].get(traces.name_of(digest), {})
        if (
            bound.get("sha256") != digest
            or path.is_symlink()
            or path.parent.is_symlink()
            or not path.is_file()
        ):
            yield Finding(TRACES, name, f"a trace {digest[:12]}", "no such file in the manifest")
            continue
        try:
            found = traces.num_events(read_json(directory, traces.name_of(digest)))
        except Unusable as error:
            yield Finding(TRACES, name, f"a trace {digest[:12]}", str(error))
        else:
            if not found:
                yield Finding(TRACES, name, f"a trace {digest[:12]}", "no event that can be read")


def check_clock(manifest: dict[str, Any]) -> Iterator[Finding]:
    """Both times are UTC."""
    try:
        started, ended = (datetime.datetime.fromisoformat(manifest[name]) for name in ("started", "ended"))
    except ValueError as error:
        yield Finding(CLOCK, "run", f"{manifest['started']} to {manifest['ended']}", str(error))
        return
    if ended < started:
        yield Finding(CLOCK, "run", f"started {manifest['started']}", f"ended {manifest['ended']}")
