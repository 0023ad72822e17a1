"""One pass over the records, all rules at once; memory does not grow with the size of a record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parproof.evidence.attempts import Ending, Tally
from parproof.evidence.audit import files, junit, merged, record_rules, sealed
from parproof.evidence.audit.findings import Finding, Unusable, declare
from parproof.evidence.audit.findings import record_rules as registered
from parproof.evidence.audit.reading import BadJson, parse, read_json, read_lines
from parproof.evidence.audit.run_rules import RUN_RULES
from parproof.evidence.schemas import violations
from parproof.evidence.store import ENVIRONMENT, MANIFEST, RECORDS

SCHEMA = declare("schema", "Records, manifest and environment keep their JSON Schema.", "schema")
TELL_EVERY = 2000  # records, about half a second
assert record_rules is not None  # imported for its rules


@dataclass
class AuditResult:
    """Findings in the order of the records; tests and levels by number, each test once with its worst attempt."""

    findings: list[Finding] = field(default_factory=list)
    num_records: int = 0
    tally: Tally = field(default_factory=Tally)
    signers: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)

    @property
    def exit_status(self) -> int:
        """0 clean, 1 findings; 2 (unusable) is an exception."""
        return 1 if self.findings else 0


def audit(
    directory: Path,
    junit_path: Path | Sequence[Path] | None = None,
    digest: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    seal: sealed.Asked | None = None,
) -> AuditResult:
    """Audit an evidence directory. Errors: Unusable when there is nothing to audit.

    junit_path of the run, or of each shard of merged evidence
    digest     what pytest printed at the end of the run: tells whether this is the same evidence
    progress   told (records read, records announced) now and then
    seal       a seal to verify, and with which keys
    Cost       about 0.25 ms and 1 KB a record: 100,000 records take half a minute
    """
    if not directory.is_dir():
        raise Unusable(f"{directory} is no directory")
    manifest = read_json(directory, MANIFEST)
    if broken := [
        Finding(SCHEMA, MANIFEST, "parproof-manifest/v1", text) for text in violations("manifest", manifest)
    ]:
        # Without a manifest that can be read as one, no other rule means anything.
        return AuditResult(broken)
    result = AuditResult()
    result.findings += files.check_files(directory, manifest)
    result.findings += files.check_manifest(directory, manifest, digest)
    result.findings += files.check_clock(manifest)
    result.findings += _environment(directory)
    _records(directory, manifest, result, progress)
    result.counts = {status: number for status, number in result.tally.counts.items() if number}
    result.levels = dict(Counter(ending.level for ending in result.tally.worst.values()))
    if junit_path:
        paths = [junit_path] if isinstance(junit_path, Path) else junit_path
        result.findings += junit.compare(_as_in_junit(result.tally), junit.read_all(paths))
    if seal is not None:
        result.findings += sealed.check_seal(seal, directory, manifest, result.tally, result.signers)
    return result


def _as_in_junit(tally: Tally) -> junit.Told:
    """Names there are shorter; of two tests that share one the worse stands for both."""
    best_first = sorted(tally.worst.items(), key=lambda entry: entry[1].severity, reverse=True)
    return {junit.name_in_junit(nodeid): (end.status, end.level) for nodeid, end in best_first}


def _environment(directory: Path) -> Iterator[Finding]:
    for text in violations("environment", read_json(directory, ENVIRONMENT)):
        yield Finding(SCHEMA, ENVIRONMENT, "parproof-environment/v1", text)


def _records(
    directory: Path,
    manifest: dict[str, Any],
    result: AuditResult,
    progress: Callable[[int, int], None],
) -> None:
    """All record rules on each record, all run rules over all."""
    path = directory / RECORDS
    if path.is_symlink() or not path.is_file():
        raise Unusable(f"{RECORDS} is missing or no regular file")
    over_all = [kind(manifest) for kind in RUN_RULES]
    parts = merged.Merged(directory, manifest)
    for number, line in read_lines(path):
        result.num_records += 1
        if not result.num_records % TELL_EVERY:
            progress(result.num_records, manifest["num_records"])
        record, problems = _parsed(line)
        result.findings += [
            Finding(SCHEMA, f"line {number}", "parproof-record/v1", text) for text in problems
        ]
        if record is None:
            continue
        name = f"record {record['sequence']} ({record['identity']['nodeid']})"
        for rule_id, rule in registered().items():
            result.findings += [
                Finding(rule_id, name, claimed, supported) for claimed, supported in rule(record)
            ]
        result.findings += files.check_trace(directory, manifest, record, name)
        result.findings += parts.see(record, name)
        for watcher in over_all:
            watcher.see(record)
        result.tally.add(record["identity"]["nodeid"], Ending.of(record["conclusion"]))
    for watcher in over_all:
        result.findings += [Finding(watcher.rule, *finding) for finding in watcher.finish()]
    result.findings += parts.finish()


def _parsed(line: bytes | None) -> tuple[dict[str, Any] | None, list[str]]:
    """(record, problems): a record that breaks its schema is not judged further."""
    if line is None:
        return None, ["line too long"]
    try:
        record = parse(line)
    except BadJson as error:
        return None, [str(error)]
    problems = list(violations("record", record))
    return (None if problems else record), problems
