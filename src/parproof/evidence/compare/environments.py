"""Machine, versions and source of a run as factors; of merged evidence those of its shards, which have to agree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parproof.errors import UsageError
from parproof.evidence import shards
from parproof.evidence.audit.reading import read_json
from parproof.evidence.compare.words import shown
from parproof.evidence.store import ENVIRONMENT

# The kernel keeps back a little more or less of the same memory from version to version.
MEMORY_TOLERANCE = 0.01
# Names of places: equal machines may be compared, and where ranks met changes nothing.
NOT_COMPARED = ("machine.hostname", "variables.MASTER_ADDR")
MAX_SHOWN = 12


def same(name: str, one: Any, other: Any) -> bool:
    """Are two values of a factor equal as far as a comparison needs it?"""
    if name in NOT_COMPARED or one == other:
        return True
    if name == "machine.memory_bytes" and one and other:
        return bool(abs(one - other) <= MEMORY_TOLERANCE * max(one, other))
    return False


def shard_ids(manifest: Mapping[str, Any]) -> list[str]:
    """Run ids of what was merged; none when nothing was."""
    return [shard["run_id"] for shard in manifest.get("merged", {"shards": ()})["shards"]]


def places(manifest: Mapping[str, Any]) -> list[str]:
    """Every environment that the factors rest on, by its place in the directory."""
    return [ENVIRONMENT, *(f"{shards.FOLDER}/{run_id}/{ENVIRONMENT}" for run_id in shard_ids(manifest))]


def factors_of(directory: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted name → value.

    The environment of merged evidence is no machine's: where shards differ it puts words side by side and drops
    numbers, so two sides of unequal machines could look alike. Each shard's own environment is read instead.

    Errors   UsageError when shards differ in what has to be equal
    """
    whole, *parts = (_flat(read_json(directory, place)) for place in places(manifest))
    found = whole | {"source": manifest["source"]["fingerprint"]}
    if not parts:
        return found
    names = sorted({name for part in parts for name in part} - set(NOT_COMPARED))
    first = parts[0]
    unequal = [name for name in names if not all(same(name, first.get(name), p.get(name)) for p in parts)]
    if unequal:
        raise _mixed(directory, unequal, dict(zip(shard_ids(manifest), parts, strict=True)))
    return found | {name: first.get(name) for name in names}


def _flat(environment: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{group}.{name}": value
        for group in ("machine", "python", "packages", "variables")
        for name, value in environment[group].items()
    }


def _mixed(directory: Path, unequal: list[str], by_shard: Mapping[str, Mapping[str, Any]]) -> UsageError:
    told = []
    for name in unequal[:MAX_SHOWN]:
        by_value: dict[str, list[str]] = {}
        for run_id, part in by_shard.items():
            by_value.setdefault(shown(part.get(name)), []).append(run_id[:8])
        values = "; ".join(f"{value} in {', '.join(ids)}" for value, ids in by_value.items())
        told.append(f"{shown(name)}: {shown(values, 600)}")
    if len(unequal) > MAX_SHOWN:
        told.append(f"and {len(unequal) - MAX_SHOWN} more")
    return UsageError(
        f"its shards differ in {len(unequal)} fact{'s' * (len(unequal) > 1)}: {' / '.join(told)}",
        expected="merged evidence of equal machines and versions",
        where=str(directory),
        next_step="compare shard by shard, each with one of the same machine and versions",
    )
