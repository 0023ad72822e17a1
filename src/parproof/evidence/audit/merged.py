"""Rules about merged evidence: every record of every shard is there, unchanged, and the whole follows from the parts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parproof.evidence import canonical, shards
from parproof.evidence.attempts import Ending, Tally
from parproof.evidence.audit import files
from parproof.evidence.audit.findings import Finding, RunRule, Unusable, declare
from parproof.evidence.audit.provenance_rules import ClockForward, EnvironmentBound
from parproof.evidence.audit.reading import BadJson, parse, read_bytes, read_json
from parproof.evidence.audit.run_rules import OF_A_SHARD
from parproof.evidence.schemas import violations
from parproof.evidence.store import ENVIRONMENT, MANIFEST

ORIGINS = declare(
    "origins-kept",
    "Every merged record is one that a shard held, unchanged, and every record and file of every shard is there.",
    "origins-kept",
)
COMPATIBLE = declare(
    "merge-compatible",
    "Merged shards are of one source, suite and torch, and each is there once.",
    "merge-compatible",
)
FOLLOWS = declare(
    "merge-follows",
    "Manifest and environment of merged evidence say what follows from its shards, differences included.",
    "merge-follows",
)


class _Restored:
    """One shard while its records come by: its chain, its file of records, and its own rules."""

    def __init__(self, shard: shards.Shard) -> None:
        self.shard = shard
        self._previous = canonical.GENESIS
        self._count = 0
        self._lines = hashlib.sha256()
        manifest = dict(shard.manifest)
        self._watchers: list[RunRule] = [kind(manifest) for kind in (*OF_A_SHARD, ClockForward)]
        self._watchers.append(EnvironmentBound(manifest, dict(shard.environment)))
        self._tally = Tally()
        self._broken: list[Finding] = []

    def see(self, record: dict[str, Any], name: str) -> None:
        """A merged record that says it is of this shard."""
        origin = record["origin"]
        original = shards.restored(record, self.shard.manifest, self._previous)
        line = canonical.dumps(original).encode()
        digest = hashlib.sha256(line).hexdigest()
        if origin["sequence"] != self._count or origin["digest"] != digest:
            claimed = f"number {origin['sequence']} of {self.shard.name}, {origin['digest'][:12]}"
            self._broken.append(Finding(ORIGINS, name, claimed, f"number {self._count}, {digest[:12]}"))
        self._lines.update(line + b"\n")
        self._previous = digest
        self._count += 1
        for watcher in self._watchers:
            watcher.see(original)
        self._tally.add(original["identity"]["nodeid"], Ending.of(original["conclusion"]))

    def finish(self, bound: dict[str, Any]) -> Iterator[Finding]:
        """The first break; the shard's own rules mean something only where it is whole.

        bound    files of the merged manifest, by name
        """
        manifest, where = self.shard.manifest, f"shard {self.shard.name}"
        claimed = manifest["num_records"], manifest["last_record"]
        if claimed != (self._count, self._previous):
            text = f"{claimed[0]} records ending in {claimed[1][:12]}"
            found = f"{self._count}, {self._previous[:12]}"
            self._broken.append(Finding(ORIGINS, where, text, found))
        for name, entry in sorted(manifest["files"].items()):
            place = shards.place(name, self.shard.run_id)
            found = self._lines.hexdigest() if place is None else bound.get(place, {}).get("sha256", "")
            if found != entry["sha256"]:
                text = f"{name} {entry['sha256'][:12]}"
                self._broken.append(Finding(ORIGINS, where, text, found[:12] or "no such file"))
        if self._broken:
            yield self._broken[0]
            return
        for watcher in self._watchers:
            for record, claim, supported in watcher.finish(self._tally):
                yield Finding(watcher.rule, f"{where}: {record}", claim, supported)


class Merged:
    """All records of a directory pass by; findings of all rules about merging come out."""

    def __init__(self, directory: Path, manifest: dict[str, Any]) -> None:
        self._manifest = manifest
        self._problems: list[Finding] = []
        self._restored: dict[str, _Restored] = {}
        self._environment: Any = None
        self._order = [entry["run_id"] for entry in manifest.get("merged", {"shards": ()})["shards"]]
        self._reached = 0
        self._unknown: set[str] = set()
        if "merged" in manifest:
            self._environment = read_json(directory, ENVIRONMENT)
            for entry in manifest["merged"]["shards"]:
                self._open(directory, entry)

    def _open(self, directory: Path, entry: dict[str, str]) -> None:
        """Read what is kept of a shard; nothing is followed out of the directory."""
        where = f"shard {entry['run_id'][:8]}"
        if entry["run_id"] in self._restored:
            self._problems.append(Finding(COMPATIBLE, where, "two shards", "one run, given twice"))
            return
        place = f"{shards.FOLDER}/{entry['run_id']}"
        try:
            data = read_bytes(directory, f"{place}/{MANIFEST}")
            manifest, environment = parse(data), read_json(directory, f"{place}/{ENVIRONMENT}")
        except (BadJson, Unusable) as error:
            self._problems.append(Finding(ORIGINS, where, "its manifest and environment", str(error)))
            return
        broken = [*violations("manifest", manifest), *violations("environment", environment)]
        if broken or manifest["run_id"] != entry["run_id"] or "merged" in manifest:
            text = broken[0] if broken else f"a manifest of run {manifest['run_id'][:8]}"
            self._problems.append(Finding(ORIGINS, where, "the manifest of a single run", text))
            return
        self._problems += files.check_manifest(data, manifest, entry["digest"])
        self._restored[entry["run_id"]] = _Restored(shards.Shard(manifest, environment))

    def see(self, record: dict[str, Any], name: str) -> Iterator[Finding]:
        """One record that keeps the schema."""
        origin = record.get("origin")
        if "merged" not in self._manifest:
            if origin is not None:
                yield Finding(ORIGINS, name, f"a record of {origin['run_id'][:8]}", "a manifest of no merge")
        elif origin is None or origin["run_id"] not in self._restored:
            unknown = origin["run_id"] if origin else "none"
            if unknown not in self._unknown:
                self._unknown.add(unknown)
                yield Finding(
                    ORIGINS, name, "part of this merge", f"the first of shard {unknown[:8]}, not here"
                )
        else:
            place = self._order.index(origin["run_id"])
            if place < self._reached:
                before = self._order[self._reached][:8]
                yield Finding(ORIGINS, name, f"before {before}", f"after it, of {origin['run_id'][:8]}")
            self._reached = max(self._reached, place)
            self._restored[origin["run_id"]].see(record, name)

    def finish(self) -> Iterator[Finding]:
        """What can be said at the end."""
        yield from self._problems
        for restored in self._restored.values():
            yield from restored.finish(self._manifest["files"])
        if len(self._restored) >= 2:
            yield from self._whole([restored.shard for restored in self._restored.values()])

    def _whole(self, found: list[shards.Shard]) -> Iterator[Finding]:
        for what, values in shards.incompatible(found):
            yield Finding(COMPATIBLE, what, "one run", values)
        ordered = shards.in_order(found)
        derived = shards.head(ordered) | {"run_id": shards.run_id(ordered)}
        labels = {shard.manifest["run_label"] for shard in ordered}
        if len(labels) == 1:
            derived["run_label"] = labels.pop()
        merged = derived.pop("merged")
        pairs = [(name, self._manifest[name], value) for name, value in derived.items()]
        pairs += [(name, self._manifest["merged"][name], value) for name, value in merged.items()]
        for name, told, value in pairs:
            if told != value:
                yield Finding(FOLLOWS, f"{MANIFEST} {name}", str(told)[:200], str(value)[:200])
        if self._environment != shards.common_environment(ordered):
            yield Finding(FOLLOWS, ENVIRONMENT, "the environment of all shards", "other values")
