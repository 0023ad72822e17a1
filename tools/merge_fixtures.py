"""Merged evidence for fixtures/evidence: two shards, what they make together, and merges that say otherwise."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parproof.evidence import canonical
from parproof.evidence.merge import merge

Records = list[dict[str, Any]]
Change = Callable[[Path, Records, dict[str, Any]], None]
SHARDS = {"first": "a" * 32, "retry": "b" * 32}


def write_shards(target: Path, make: Callable[[], Any]) -> None:
    """A run in which a test failed, and a later one on another machine of what had failed, which then passed.

    make   gives a good directory in memory, as make_evidence_fixtures has it
    """
    first, retry = make(), make()
    flaky = copy.deepcopy(first.records[0])
    end = first.records[0]["conclusion"]
    end |= {"status": "failed", "correctness": "fail"}
    end["failure"] = {"type": "AssertionError", "message": "rank 1 of 2: differs", "phase": "call", "rank": 1}
    del first.records[0]["not_collected"]["conclusion.failure"]
    first.manifest |= {"exit_status": 1}
    retry.records = [flaky]
    retry.environment["machine"]["hostname"] = "node-b"
    retry.manifest |= {
        "collected": [flaky["identity"]["nodeid"]],
        "num_deselected": len(first.records) - 1,
        "started": "2026-01-02T03:05:00.000000+00:00",
        "ended": "2026-01-02T03:05:01.000000+00:00",
    }
    for name, directory in (("first", first), ("retry", retry)):
        directory.run_id = directory.manifest["run_id"] = SHARDS[name]
        directory.write(target / name)


def write_all(target: Path, make: Callable[[], Any]) -> None:
    """shards/, merged/, and a directory for every rule about merging below bad/."""
    write_shards(target / "shards", make)
    shards = [target / "shards" / name for name in SHARDS]
    merge(shards, target / "merged")
    for rule, change in LIES.items():
        merge(shards, target / "bad" / rule)
        reseal(target / "bad" / rule, change)


def reseal(path: Path, change: Change) -> None:
    """Change records and manifest of a directory, and chain, bind and digest it again, as a liar would."""
    manifest = json.loads((path / "manifest.json").read_text())
    records = [json.loads(line) for line in (path / "records.jsonl").read_text().splitlines()]
    change(path, records, manifest)
    previous = canonical.GENESIS
    for number, record in enumerate(records):
        record |= {"sequence": number, "previous": previous}
        previous = canonical.digest(record)
    (path / "records.jsonl").write_text("".join(canonical.dumps(record) + "\n" for record in records))
    manifest |= {"num_records": len(records), "last_record": previous}
    for name, entry in manifest["files"].items():
        entry |= {"sha256": canonical.file_digest(path / name), "bytes": (path / name).stat().st_size}
    del manifest["digest"]
    manifest["digest"] = canonical.digest(manifest)
    (path / "manifest.json").write_text(canonical.dumps(manifest) + "\n")


def left_out(path: Path, records: Records, manifest: dict[str, Any]) -> None:
    """The failure of the first attempt is gone; what is left counts, and looks like one good attempt."""
    del records[0], records[-1]["attempt"], manifest["flaky"]
    manifest |= {"counts": {"ok": 4, "failed": 1, "blocked": 0, "skipped": 1}, "exit_status": 0}


def another_torch(path: Path, records: Records, manifest: dict[str, Any]) -> None:
    """The retry was made with another torch; everything that follows is made to fit."""
    from parproof.evidence import shards

    found = []
    for entry in manifest["merged"]["shards"]:
        folder = path / "shards" / entry["run_id"]
        told, environment = (
            json.loads((folder / f"{n}.json").read_text()) for n in ("manifest", "environment")
        )
        if entry["run_id"] == SHARDS["retry"]:
            environment["packages"]["torch"] = "2.14.0+cpu"
            (folder / "environment.json").write_text(canonical.dumps(environment) + "\n")
            kept = told["files"]["environment.json"]
            size = (folder / "environment.json").stat().st_size
            kept |= {"sha256": canonical.file_digest(folder / "environment.json"), "bytes": size}
            del told["digest"]
            told["digest"] = canonical.digest(told)
            (folder / "manifest.json").write_text(canonical.dumps(told) + "\n")
        found.append(shards.Shard(told, environment))
    manifest |= shards.head(found) | {"run_id": shards.run_id(found)}
    for record in records:
        record["run_id"] = manifest["run_id"]
    (path / "environment.json").write_text(canonical.dumps(shards.common_environment(found)) + "\n")


def one_machine(path: Path, records: Records, manifest: dict[str, Any]) -> None:
    """Nobody has to know that the retry ran elsewhere."""
    manifest["merged"]["differences"] = []


LIES: dict[str, Change] = {
    "merge-compatible": another_torch,
    "merge-follows": one_machine,
    "origins-kept": left_out,
}
