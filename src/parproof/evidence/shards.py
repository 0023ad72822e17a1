"""Shards of one run: what a merged directory keeps of them, and what follows from them.

Writing (merge.py) and auditing (audit/merged.py) derive the same from the same: nothing about a merge is typed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from parproof.evidence import canonical, traces
from parproof.evidence.attempts import numbered
from parproof.evidence.store import RECORDS

FOLDER = "shards"
_FACTS = (
    "machine.hostname",
    "machine.system",
    "machine.kernel",
    "machine.architecture",
    "machine.cpu_model",
    "machine.num_cpus",
    "machine.memory_bytes",
    "python.version",
    "python.implementation",
)
_MUST_BE_EQUAL = ("parproof", "torch")


@dataclass(frozen=True)
class Shard:
    """One run's evidence as it was before the merge: its manifest and its environment."""

    manifest: Mapping[str, Any]
    environment: Mapping[str, Any]

    @property
    def run_id(self) -> str:
        """Of the run that made it."""
        return str(self.manifest["run_id"])

    @property
    def name(self) -> str:
        """Short, for people."""
        return self.run_id[:8]

    def fact(self, path: str) -> Any:
        """One value of the environment by its dotted path; None where there is none."""
        group, _, name = path.partition(".")
        return self.environment[group].get(name)


def in_order(shards: Sequence[Shard]) -> list[Shard]:
    """By their starts, so that attempts come in the order in which they were made."""
    return sorted(shards, key=lambda shard: (shard.manifest["started"], shard.run_id))


def place(name: str, run_id: str) -> str | None:
    """Where a shard's file is in the merged directory; None for the records, which are restored from the merged ones."""
    if name == RECORDS:
        return None
    return name if name.startswith(f"{traces.FOLDER}/") else f"{FOLDER}/{run_id}/{name}"


def moved(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record as a store takes it, with what is needed to put it back."""
    origin = {name: record[name] for name in ("run_id", "sequence")} | {"digest": canonical.digest(record)}
    if "attempt" in record:
        origin["attempt"] = record["attempt"]
    return {name: value for name, value in record.items() if name != "attempt"} | {"origin": origin}


def restored(record: Mapping[str, Any], shard: Mapping[str, Any], previous: str) -> dict[str, Any]:
    """The record as its shard held it.

    shard      the shard's manifest
    previous   digest of the record before it in that shard
    """
    origin = record["origin"]
    rest = {name: value for name, value in record.items() if name not in ("origin", "attempt")}
    place_there = {"run_id": origin["run_id"], "sequence": origin["sequence"], "previous": previous}
    label = {"identity": record["identity"] | {"run_label": shard["run_label"]}}
    return rest | place_there | label | numbered(origin.get("attempt", 1))


def incompatible(shards: Sequence[Shard]) -> Iterator[tuple[str, str]]:
    """(what differs, its values): these shards are not of one run. The source's fingerprint binds the registry too."""
    first = shards[0]
    for shard in shards[1:]:
        pairs = [(f"source {name}", name) for name in ("commit", "fingerprint", "dirty")]
        for what, name in pairs:
            yield from _unequal(
                what, (first, first.manifest["source"][name]), (shard, shard.manifest["source"][name])
            )
        for package in _MUST_BE_EQUAL:
            path = f"packages.{package}"
            yield from _unequal(path, (first, first.fact(path)), (shard, shard.fact(path)))
    for left, right in combinations(shards, 2):
        if left.run_id == right.run_id:
            same = left.manifest["digest"] == right.manifest["digest"]
            told = (
                "the same evidence"
                if same
                else "two directories of one run, so one of them was changed and sealed again"
            )
            yield f"run {left.name} given twice", told


def _unequal(what: str, left: tuple[Shard, Any], right: tuple[Shard, Any]) -> Iterator[tuple[str, str]]:
    if left[1] != right[1]:
        yield what, f"{left[1]} in {left[0].name}, {right[1]} in {right[0].name}"


def head(shards: Sequence[Shard]) -> dict[str, Any]:
    """What the merged manifest says of the run, all of it derived. Takes the shards in their order."""
    manifests = [shard.manifest for shard in shards]
    return {
        "started": min(manifest["started"] for manifest in manifests),
        "ended": max(manifest["ended"] for manifest in manifests),
        "complete": all(manifest["complete"] for manifest in manifests),
        "command": ["parproof", "merge", *(shard.run_id for shard in shards)],
        "collected": _union(manifests, "collected"),
        "collection_errors": _union(manifests, "collection_errors"),
        "num_deselected": _num_deselected(manifests),
        "source": manifests[0]["source"],
        "merged": {
            "shards": [{"run_id": shard.run_id, "digest": shard.manifest["digest"]} for shard in shards],
            "differences": list(differences(shards)),
        },
    }


def run_id(shards: Sequence[Shard]) -> str:
    """Follows from the shards: merged again, they make the same run."""
    return canonical.digest([shard.manifest["digest"] for shard in shards])[:32]


def _union(manifests: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    return list(dict.fromkeys(entry for manifest in manifests for entry in manifest[name]))


def _num_deselected(manifests: Sequence[Mapping[str, Any]]) -> int:
    """Tests that no shard ran, where all shards selected from the same tests; else as many as it may be at most."""
    found = {len(manifest["collected"]) + manifest["num_deselected"] for manifest in manifests}
    rest = max(found) - len(_union(manifests, "collected"))
    return rest if len(found) == 1 and rest >= 0 else sum(m["num_deselected"] for m in manifests)


def differences(shards: Sequence[Shard]) -> Iterator[str]:
    """What a reader has to know before reading all records as those of one machine at one time."""
    packages = sorted({f"packages.{name}" for shard in shards for name in shard.environment["packages"]})
    variables = sorted({f"variables.{name}" for shard in shards for name in shard.environment["variables"]})
    for path in (*_FACTS, *packages, *variables):
        by_value: dict[str, list[str]] = {}
        for shard in shards:
            by_value.setdefault(str(shard.fact(path)), []).append(shard.name)
        if len(by_value) > 1:
            yield f"{path}: " + "; ".join(
                f"{value} in {', '.join(names)}" for value, names in by_value.items()
            )
    hosts = list(dict.fromkeys(shard.fact("machine.hostname") for shard in shards))
    if len(hosts) > 1:
        yield f"{len(hosts)} machines: a record spans machines only where its own scope says so"
    for host in hosts:
        there = [shard for shard in shards if shard.fact("machine.hostname") == host]
        if together := [shard.name for shard in there if _overlaps(shard, there)]:
            yield f"at the same time on {host}: {', '.join(together)}; their times may be disturbed"
    again = sum(len(shard.manifest["collected"]) for shard in shards)
    again -= len(_union([shard.manifest for shard in shards], "collected"))
    if again:
        yield f"attempts beside the first, of which the worst counts: {again}"


def _overlaps(shard: Shard, others: Sequence[Shard]) -> bool:
    """Did another run at the same time? Times are UTC in one form, so their order is that of the texts."""
    here = shard.manifest
    return any(
        here["started"] < other.manifest["ended"] and other.manifest["started"] < here["ended"]
        for other in others
        if other is not shard
    )


def common_environment(shards: Sequence[Shard]) -> dict[str, Any]:
    """One environment: where shards differ, all their words side by side, and no number."""
    first = shards[0].environment
    found: dict[str, Any] = {"schema": first["schema"]}
    for group in ("machine", "python", "packages", "variables"):
        names = sorted({name for shard in shards for name in shard.environment[group]})
        found[group] = {
            name: _together([shard.fact(f"{group}.{name}") for shard in shards]) for name in names
        }
    return found


def _together(values: Sequence[Any]) -> Any:
    if all(value == values[0] for value in values):
        return values[0]
    if any(isinstance(value, int) for value in values):
        return None
    return " | ".join(sorted({str(value) for value in values}))
