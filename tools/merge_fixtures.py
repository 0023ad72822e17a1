"""Merged evidence for fixtures/evidence: two shards, what they make together, and merges that say otherwise."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from evidence_directory import Directory

from parproof.evidence import canonical
from parproof.evidence import merge as merging
from parproof.evidence.merge import merge

Records = list[dict[str, Any]]
Change = Callable[[Path, Records, dict[str, Any]], None]
SHARDS = {"first": "a" * 32, "retry": "b" * 32}


def write_shards(target: Path, torch: str = "") -> list[Path]:
    """A run in which a test failed, and a later one on another machine of what had failed, which then passed.

    torch   of the retry, if it is another one
    """
    first = Directory(run_id=SHARDS["first"])
    retry = Directory(("value",), machine="node-b", run_id=SHARDS["retry"], after_s=60)
    end = first.records[0]["conclusion"]
    end |= {"status": "failed", "correctness": "fail"}
    end["failure"] = {"type": "AssertionError", "message": "rank 1 of 2: differs", "phase": "call", "rank": 1}
    del first.records[0]["not_collected"]["conclusion.failure"]
    first.manifest |= {"exit_status": 1}
    retry.manifest |= {"num_deselected": len(first.records) - 1}
    if torch:
        retry.environment["packages"]["torch"] = torch
    for name, directory in (("first", first), ("retry", retry)):
        directory.write(target / name)
    return [target / name for name in SHARDS]


def write_all(target: Path) -> None:
    """shards/, merged/, and a directory for every rule about merging below bad/."""
    shards = write_shards(target / "shards")
    merge(shards, target / "merged")
    for rule, change in LIES.items():
        merge(shards, target / "bad" / rule)
        reseal(target / "bad" / rule, change)
    with tempfile.TemporaryDirectory() as folder:
        merge_blindly(write_shards(Path(folder), "2.14.0+cpu"), target / "bad" / "merge-compatible")


def merge_blindly(shards: Sequence[Path], output: Path) -> None:
    """As somebody would who had taken the check out of the tool."""
    whole = {*merging.OF_THE_WHOLE, "merge-compatible"}
    with (
        mock.patch.object(merging, "_check", return_value=None),
        mock.patch.object(merging, "OF_THE_WHOLE", whole),
    ):
        merge(shards, output)


def reseal(path: Path, change: Change) -> None:
    """Change records and manifest of a directory, and chain, bind and digest it again, as a liar would."""
    manifest = json.loads((path / "manifest.json").read_text())
    records = [json.loads(line) for line in (path / "records.jsonl").read_text().splitlines()]
    change(path, records, manifest)
    previous = canonical.GENESIS
    made_from = {"source": manifest["source"]["fingerprint"]}
    made_from["environment"] = canonical.file_digest(path / "environment.json")
    for number, record in enumerate(records):
        record |= {"sequence": number, "previous": previous}
        if "merged" not in manifest:
            record["provenance"] |= made_from
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


def one_machine(path: Path, records: Records, manifest: dict[str, Any]) -> None:
    """Nobody has to know that the retry ran elsewhere."""
    manifest["merged"]["differences"] = []


LIES: dict[str, Change] = {
    "merge-follows": one_machine,
    "origins-kept": left_out,
}
