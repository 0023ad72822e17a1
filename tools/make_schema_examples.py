"""Writes schemas/examples: valid documents, and for each rule of a schema one document that breaks it and no other.

    python tools/make_schema_examples.py          # rewrite them all
    python tools/make_schema_examples.py --check  # fail if what is committed differs

An invalid example is named SCHEMA--PLACE--RULE.json: the place as dotted path, and what is wrong there.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from parproof.evidence.exchange import exporting, importing

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "schemas" / "examples"
GOOD = ROOT / "fixtures" / "evidence" / "good"
NCCL = ROOT / "fixtures" / "exchange" / "nccl" / "alltoall.txt"
ABSENT = object()

# (schema, valid example it starts from, place, rule, value that breaks it)
BROKEN: list[tuple[str, str, str, str, Any]] = [
    ("record", "passed", "schema", "unknown-version", "parproof-record/v9"),
    ("record", "passed", "run_id", "not-hexadecimal", "run-1"),
    ("record", "passed", "previous", "too-short", "0" * 63),
    ("record", "passed", "sequence", "negative", -1),
    ("record", "passed", "identity", "missing", ABSENT),
    ("record", "passed", "identity.nodeid", "empty", ""),
    ("record", "passed", "topology.scope", "unknown-word", "cluster"),
    ("record", "passed", "conclusion.status", "unknown-word", "passed"),
    ("record", "passed", "conclusion.evidence_level", "unknown-word", "production"),
    ("record", "passed", "conclusion.confidence", "unknown-field", 0.9),
    ("record", "passed", "not_collected.load.per_rank", "empty-reason", ""),
    ("record", "timed", "time.test_s", "negative", -0.5),
    ("record", "timed", "time.test_s", "text-for-a-number", "0.5"),
    ("record", "passed", "observation.runs.0.ranks.0.pid", "missing", ABSENT),
    ("manifest", "complete", "started", "not-utc", "2026-11-29T12:00:00.000000+08:00"),
    ("manifest", "complete", "complete", "text-for-a-boolean", "yes"),
    ("manifest", "complete", "num_records", "negative", -1),
    ("manifest", "complete", "digest", "missing", ABSENT),
    ("manifest", "complete", "files.../secrets", "leaves-the-directory", {"sha256": "0" * 64, "bytes": 1}),
    ("environment", "cpu", "packages.torch", "missing", ABSENT),
    ("environment", "cpu", "variables.OMP_NUM_THREADS", "number-for-text", 1),
    ("registry", "project", "experiment.0.title", "missing", ABSENT),
    ("distributed-benchmark", "citation", "schema_version", "unknown-version", "distributed-benchmark/v2"),
    ("distributed-benchmark", "citation", "project", "page-number", "80"),
    ("distributed-benchmark", "citation", "role", "of-another-project", "training_state_parallel"),
    ("distributed-benchmark", "citation", "hardware", "text", "8 GPUs"),
    ("distributed-benchmark", "citation", "decision", "text", "accept"),
    ("distributed-benchmark", "citation", "decision.decision", "accept", "accept"),
    ("distributed-benchmark", "citation", "evidence_level", "of-its-mechanisms", "cpu_simulation"),
    ("distributed-benchmark", "citation", "failure", "none-for-what-did-not-run", None),
    ("distributed-benchmark", "citation", "metrics.time.exposed_s", "measured-by-a-mechanism", 0.5),
    ("distributed-benchmark", "citation", "metrics.cites.0.num_records.ok", "negative", -1),
    ("distributed-benchmark", "citation", "metrics.speedup", "unknown-field", 3.0),
    ("distributed-benchmark", "citation", "sources.0.sha256", "missing", ABSENT),
    ("distributed-benchmark", "citation", "sources.0.path", "leaves-the-directory", "../manifest.json"),
    ("distributed-benchmark", "citation", "artifacts.not_collected.strategy", "empty-reason", ""),
    ("distributed-benchmark", "result", "evidence_level", "not-canonical", "real_multi_gpu_smoke"),
    ("distributed-benchmark", "result", "evidence_level", "gpu-without-a-gpu", "real_benchmark"),
    ("distributed-benchmark", "result", "artifacts.record", "missing", ABSENT),
    ("import", "nccl", "original.sha256", "too-short", "5eed"),
    ("import", "nccl", "supports.at_most", "benchmark-without-evidence", "real_benchmark"),
    ("import", "nccl", "supports.at_most", "unknown-word", "production"),
    ("import", "nccl", "groups.time.median_s", "missing", ABSENT),
    ("import", "nccl", "limits.0.id", "not-an-id", "Limit 1"),
    ("import", "unreadable", "why", "missing", ABSENT),
]


def valid() -> dict[str, dict[str, Any]]:
    """«SCHEMA--NAME» → document."""
    records = [json.loads(line) for line in (GOOD / "records.jsonl").read_text().splitlines()]
    by_status = {record["conclusion"]["status"]: record for record in reversed(records)}
    return {
        "record--passed": by_status["ok"],
        "record--failed": by_status["failed"],
        "record--skipped": by_status["skipped"],
        "record--timed": next(record for record in records if record["time"]["measured"]),
        "manifest--complete": json.loads((GOOD / "manifest.json").read_text()),
        "environment--cpu": json.loads((GOOD / "environment.json").read_text()),
        "distributed-benchmark--citation": exporting.build(GOOD, ["PAR-MOE-EXPERT"]).documents[
            "PAR-MOE-EXPERT.json"
        ],
        "distributed-benchmark--result": result(records[0]),
        "import--nccl": importing.describe(importing.import_files([NCCL])[0]),
        "import--unreadable": importing.describe(importing.import_files([NCCL / "absent"])[0]),
        "registry--project": tomllib.loads((ROOT / "src" / "parproof" / "registry.toml").read_text()),
    }


def result(mechanism: dict[str, Any]) -> dict[str, Any]:
    """A document of a project that ran: no project test exists yet, so the record of a mechanism is renamed."""
    manifest = json.loads((GOOD / "manifest.json").read_text())
    renamed = {"semantic_id": "PAR-TRAINING-STATE", "claims": [], "page": "79 (all)"}
    record = mechanism | {"identity": mechanism["identity"] | renamed}
    (document,) = exporting.assemble(manifest, [record], ["PAR-TRAINING-STATE"]).documents.values()
    sources = [{"path": name, **bound} for name, bound in sorted(manifest["files"].items())]
    sources.append({"path": "manifest.json", "sha256": manifest["digest"], "bytes": 1})
    return document | {"sources": sources}


def invalid() -> dict[str, Any]:
    """«SCHEMA--PLACE--RULE» → document."""
    starts = valid()
    return {
        f"{schema}--{place.replace('/', '_')}--{rule}": broken(starts[f"{schema}--{start}"], place, value)
        for schema, start, place, rule, value in BROKEN
    }


def broken(document: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    """A copy with another value, or none, at one place. A key may hold dots: the longest one that is there."""
    copied = copy.deepcopy(document)
    at: Any = copied
    rest = place
    while True:
        key, rest = _next_key(at, rest)
        if not rest:
            break
        at = at[key]
    if value is ABSENT:
        del at[key]
    else:
        at[key] = value
    return copied


def _next_key(at: Any, path: str) -> tuple[Any, str]:
    if isinstance(at, list):
        head, _, rest = path.partition(".")
        return int(head), rest
    for name in sorted(at, key=len, reverse=True):
        if path == name or path.startswith(f"{name}."):
            return name, path[len(name) + 1 :]
    return path, ""


def documents() -> dict[str, str]:
    """Path below schemas/examples → text."""
    kinds = {"valid": valid(), "invalid": invalid()}
    return {
        f"{kind}/{name}.json": json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        for kind, made in kinds.items()
        for name, document in made.items()
    }


def main() -> int:
    """Write, or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    expected = documents()
    there = {
        str(path.relative_to(EXAMPLES).as_posix()): path.read_text() for path in EXAMPLES.rglob("*.json")
    }
    if check:
        differing = sorted(
            name for name in expected.keys() | there.keys() if expected.get(name) != there.get(name)
        )
        print("\n".join(differing) or "examples are up to date")  # noqa: T201
        return 1 if differing else 0
    for name in there:
        (EXAMPLES / name).unlink()
    for name, text in expected.items():
        (EXAMPLES / name).parent.mkdir(parents=True, exist_ok=True)
        (EXAMPLES / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
