"""An in-toto Statement v1 with the test-result predicate, derived from manifest and records.

Source   https://github.com/in-toto/attestation: spec/v1/statement.md, spec/predicates/test-result.md
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from parproof.evidence import canonical
from parproof.evidence.attempts import Tally
from parproof.evidence.store import ENVIRONMENT, MANIFEST

TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
MAX_CONTENT_BYTES = 1000  # the specification asks to keep content that is written out below 1 KB


def statement(manifest_sha256: str, manifest: Mapping[str, Any], tally: Tally) -> dict[str, Any]:
    """The statement that this evidence supports. Sizes grow with the names of the tests.

    manifest_sha256   of the bytes of manifest.json
    """
    return {
        "_type": TYPE,
        "subject": [
            {"name": name, "digest": {"sha256": sha256}}
            for name, sha256 in sorted(subjects(manifest_sha256, manifest).items())
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate(manifest, tally),
    }


def subjects(manifest_sha256: str, manifest: Mapping[str, Any]) -> dict[str, str]:
    """sha256 of every file of the directory, by name."""
    return {name: entry["sha256"] for name, entry in manifest["files"].items()} | {MANIFEST: manifest_sha256}


def predicate(manifest: Mapping[str, Any], tally: Tally) -> dict[str, Any]:
    """Each test is in one list, once, by its worst attempt.

    failedTests   failed or blocked, and nobody expected it
    warnedTests   failed as a public report says: a fault that was found, so not passed, but it makes no run red
    skipped ones  in a field of our own, which others ignore: in none of the three lists, so nobody takes them for passed
    """
    ends = tally.worst
    known = {test: end.report for test, end in ends.items() if end.report is not None}
    failed = [t for t, end in ends.items() if end.status in ("failed", "blocked") and t not in known]
    warned = [test for test in known if test not in tally.unexpected]
    failed += [test for test in known if test in tally.unexpected]
    passed = [test for test, end in ends.items() if end.status == "ok"]
    return {
        "result": _result(manifest, passed, warned, failed),
        "configuration": list(_configuration(manifest)),
        "passedTests": sorted(passed),
        "warnedTests": sorted(warned),
        "failedTests": sorted(failed),
        "parproof_skippedTests": sorted(test for test, end in ends.items() if end.status == "skipped"),
        "parproof_flakyTests": tally.flaky,
        "parproof_knownNonconformances": dict(sorted(known.items())),
        "parproof_run": {name: manifest[name] for name in ("run_id", "digest", "started", "ended", "counts")},
    }


def _result(manifest: Mapping[str, Any], passed: list[str], warned: list[str], failed: list[str]) -> str:
    """FAILED where a test failed or the run did not end; PASSED only where something passed and nothing warns."""
    if failed or not manifest["complete"] or manifest["exit_status"] != 0:
        return "FAILED"
    return "PASSED" if passed and not warned else "WARNED"


def _configuration(manifest: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What was run, with what: source tree, environment and command line, as ResourceDescriptors."""
    source = manifest["source"]
    digests = {"parproofSourceTree": source["fingerprint"]}
    if source["commit"] is not None:
        digests["gitCommit"] = source["commit"]
    yield {"name": "source", "digest": digests, "annotations": {"dirty": source["dirty"]}}
    environment = manifest["files"].get(ENVIRONMENT, {"sha256": ""})
    yield {"name": ENVIRONMENT, "digest": {"sha256": environment["sha256"]}, "mediaType": "application/json"}
    command = canonical.dumps(manifest["command"]).encode()
    told = {"name": "command", "digest": {"sha256": canonical.digest(manifest["command"])}}
    if len(command) <= MAX_CONTENT_BYTES:
        told["content"] = base64.b64encode(command).decode()
    yield told | {"mediaType": "application/json"}


def serialized(told: Mapping[str, Any]) -> bytes:
    """As it is signed and written."""
    return canonical.dumps(told).encode()
