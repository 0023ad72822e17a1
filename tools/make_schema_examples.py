"""Writes schemas/examples: valid documents, and for each rule of a schema one document that breaks it and no other.

    python tools/make_schema_examples.py          # rewrite them all
    python tools/make_schema_examples.py --check  # fail if what is committed differs

An invalid example is named SCHEMA--PLACE--RULE.json: the place as dotted path, and what is wrong there.
"""

from __future__ import annotations

import argparse
import base64
import copy
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from parproof.evidence.compare import Options, Varies, compare
from parproof.evidence.exchange import exporting, importing

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "schemas" / "examples"
GOOD = ROOT / "fixtures" / "evidence" / "good"
MERGED = ROOT / "fixtures" / "evidence" / "merged"
SEAL = ROOT / "fixtures" / "evidence" / "seals" / "good.json"
MADE_UP = ROOT / "fixtures" / "comparison"
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
    ("record", "passed", "provenance", "missing", ABSENT),
    ("record", "passed", "provenance.source", "not-a-digest", "main"),
    ("record", "passed", "provenance.worker", "empty", ""),
    ("record", "timed", "time.started", "not-utc", "2026-11-29T12:00:00.000000+08:00"),
    ("manifest", "complete", "started", "not-utc", "2026-11-29T12:00:00.000000+08:00"),
    ("manifest", "complete", "complete", "text-for-a-boolean", "yes"),
    ("manifest", "complete", "num_records", "negative", -1),
    ("manifest", "complete", "digest", "missing", ABSENT),
    ("manifest", "complete", "files.../secrets", "leaves-the-directory", {"sha256": "0" * 64, "bytes": 1}),
    ("environment", "cpu", "packages.torch", "missing", ABSENT),
    ("environment", "cpu", "variables.OMP_NUM_THREADS", "number-for-text", 1),
    ("envelope", "seal", "signatures", "nobody-signed", []),
    ("envelope", "seal", "payload", "missing", ABSENT),
    ("envelope", "seal", "signatures.0.sig", "number-for-text", 1),
    ("statement", "seal", "_type", "another-version", "https://in-toto.io/Statement/v0.1"),
    ("statement", "seal", "predicate.result", "unknown-word", "OK"),
    ("statement", "seal", "subject.0.digest.sha256", "too-short", "0" * 63),
    ("statement", "seal", "predicate.configuration.0.digest", "nothing-that-identifies-it", ABSENT),
    ("statement", "seal", "predicate.passedTests.0", "number-for-text", 1),
    ("manifest", "complete", "flaky", "twice", ["a", "a"]),
    ("manifest", "merged", "merged.shards.0.digest", "too-short", "0" * 63),
    ("record", "merged", "origin.digest", "missing", ABSENT),
    ("record", "merged", "attempt", "the-first-has-none", 1),
    ("registry", "project", "experiment.0.title", "missing", ABSENT),
    ("comparison", "accepted", "baseline.0.digest", "missing", ABSENT),
    ("comparison", "accepted", "candidate", "no-run", []),
    ("comparison", "accepted", "decision.level", "accepted-on-cpu", "cpu_process_group"),
    ("comparison", "accepted", "decision.next_action", "empty", ""),
    ("comparison", "accepted", "settings.alpha", "certainty", 0),
    ("comparison", "accepted", "times.0.bounds", "verdict-without-bounds", None),
    ("comparison", "regressed", "times.0.verdict", "unknown-word", "regressed"),
    ("comparison", "regressed", "gate.found.time", "missing", ABSENT),
    ("comparison", "regressed", "not_shown", "nothing", []),
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
    merged = [json.loads(line) for line in (MERGED / "records.jsonl").read_text().splitlines()]
    envelope = json.loads(SEAL.read_text())
    by_status = {record["conclusion"]["status"]: record for record in reversed(records)}
    return {
        "record--passed": by_status["ok"],
        "record--failed": by_status["failed"],
        "record--skipped": by_status["skipped"],
        "record--timed": next(record for record in records if record["time"]["measured"]),
        "record--merged": next(record for record in merged if "attempt" in record),
        "manifest--merged": json.loads((MERGED / "manifest.json").read_text()),
        "envelope--seal": envelope,
        "statement--seal": json.loads(base64.b64decode(envelope["payload"])),
        "manifest--complete": json.loads((GOOD / "manifest.json").read_text()),
        "environment--cpu": json.loads((GOOD / "environment.json").read_text()),
        "comparison--accepted": comparison("baseline", "candidate"),
        "comparison--regressed": comparison("candidate", "baseline"),
        "distributed-benchmark--citation": exporting.build(GOOD, ["PAR-MOE-EXPERT"]).documents[
            "PAR-MOE-EXPERT.json"
        ],
        "distributed-benchmark--result": result(records[0]),
        "import--nccl": importing.describe(importing.import_files([NCCL])[0]),
        "import--unreadable": importing.describe(importing.import_files([NCCL / "absent"])[0]),
        "registry--project": tomllib.loads((ROOT / "src" / "parproof" / "registry.toml").read_text()),
    }


def comparison(baseline: str, candidate: str) -> dict[str, Any]:
    """Of made-up benchmarks, three runs a side, gated."""
    sides = [sorted(MADE_UP.glob(f"{name}-*")) for name in (baseline, candidate)]
    asked = Options(Varies("source"), fail_on=("correctness", "level", "traffic", "time"))
    document: dict[str, Any] = json.loads(json.dumps(compare(*sides, asked)))
    return document


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
