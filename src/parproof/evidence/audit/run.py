"""One pass over the records, all rules at once; memory does not grow with the size of a record."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parproof.evidence.attempts import Ending, Tally
from parproof.evidence.audit import (
    files,
    junit,
    merged,
    overclaim_rules,
    record_rules,
    sealed,
    timing_rules,
    traffic_rules,
)
from parproof.evidence.audit.findings import Finding, RecordRule, RunRule, Unusable, declare
from parproof.evidence.audit.findings import record_rules as registered
from parproof.evidence.audit.opening import check_directory
from parproof.evidence.audit.provenance_rules import PROVENANCE_RULES, ClockForward, EnvironmentBound
from parproof.evidence.audit.reading import BadJson, parse, read_bytes, read_json, read_lines
from parproof.evidence.audit.run_rules import RUN_RULES
from parproof.evidence.schemas import violations
from parproof.evidence.store import ENVIRONMENT, MANIFEST, RECORDS

SCHEMA = declare("schema", "Records, manifest and environment keep their JSON Schema.", "schema")
TELL_EVERY = 2000  # records, about half a second
MAX_FINDINGS = 1000
"""Of one rule. The rest is counted: whoever has a thousand does not read on."""
MAX_BAD_LINES = 1000
BRIEF_FROM_BYTES = 1 << 18
# Imported for their rules.
assert all((overclaim_rules, record_rules, timing_rules, traffic_rules))


@dataclass
class AuditResult:
    """Findings in the order of the records; tests and levels by number, each test once with its worst attempt."""

    findings: list[Finding] = field(default_factory=list)
    num_records: int = 0
    tally: Tally = field(default_factory=Tally)
    signers: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)
    _of_rule: Counter[str] = field(default_factory=Counter, repr=False)

    @property
    def exit_status(self) -> int:
        """0 clean, 1 findings; 2 (unusable) is an exception."""
        return 1 if self.findings else 0

    def note(self, found: Iterable[Finding]) -> None:
        """Keep the first of each rule, count all."""
        for finding in found:
            self._of_rule[finding.rule] += 1
            if self._of_rule[finding.rule] <= MAX_FINDINGS:
                self.findings.append(finding)

    def tell_the_rest(self) -> None:
        """One finding for all that were only counted, for each rule."""
        for rule, number in self._of_rule.items():
            if number > MAX_FINDINGS:
                more = f"{number - MAX_FINDINGS} more like these"
                self.findings.append(Finding(rule, "run", "no further finding", more))


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
    check_directory(directory)
    data = read_bytes(directory, MANIFEST)
    try:
        manifest = parse(data)
    except BadJson as error:
        raise Unusable(f"{MANIFEST}: {error}") from error
    result = AuditResult()
    broken = violations("manifest", manifest, brief=len(data) > BRIEF_FROM_BYTES)
    result.note(Finding(SCHEMA, MANIFEST, "parproof-manifest/v1", text) for text in broken)
    if result.findings:
        # Without a manifest that can be read as one, no other rule means anything.
        return result
    result.note(files.check_files(directory, manifest))
    result.note(files.check_manifest(data, manifest, digest))
    environment = read_json(directory, ENVIRONMENT)
    problems = list(violations("environment", environment, brief=True))
    result.note(Finding(SCHEMA, ENVIRONMENT, "parproof-environment/v1", text) for text in problems)
    over_all = _rules_of_the_whole(manifest, None if problems else environment)
    told = _records(directory, manifest, over_all, result, progress)
    result.counts = {status: number for status, number in result.tally.counts.items() if number}
    result.levels = dict(Counter(ending.level for ending in result.tally.worst.values()))
    if junit_path:
        paths = [junit_path] if isinstance(junit_path, Path) else junit_path
        result.note(junit.compare(told, junit.read_all(paths)))
    if seal is not None:
        result.note(sealed.check_seal(seal, directory, manifest, result.tally, result.signers))
    result.tell_the_rest()
    return result


def _rules_of_the_whole(manifest: dict[str, Any], environment: dict[str, Any] | None) -> list[RunRule]:
    """Shards have machines and clocks of their own: there these rules are for each shard to keep."""
    if "merged" in manifest:
        return [kind(manifest) for kind in (*RUN_RULES, *PROVENANCE_RULES) if kind is not ClockForward]
    found: list[RunRule] = [kind(manifest) for kind in (*RUN_RULES, *PROVENANCE_RULES)]
    return [*found, EnvironmentBound(manifest, environment)] if environment is not None else found


def _records(
    directory: Path,
    manifest: dict[str, Any],
    over_all: list[RunRule],
    result: AuditResult,
    progress: Callable[[int, int], None],
) -> junit.Told:
    """All record rules on each record, all run rules over all; returns what JUnit is compared with."""
    told: junit.Told = {}
    traces, parts = files.Traces(directory, manifest), merged.Merged(directory, manifest)
    seen, num_bad = hashlib.sha256(), 0
    for number, line in read_lines(directory / RECORDS, seen):
        result.num_records += 1
        if not result.num_records % TELL_EVERY:
            progress(result.num_records, manifest["num_records"])
        record, problems = parsed(line)
        result.note(Finding(SCHEMA, f"line {number}", "parproof-record/v1", text) for text in problems)
        if record is None:
            num_bad += 1
            if num_bad > MAX_BAD_LINES:
                rest = f"more than {MAX_BAD_LINES} lines that are none; the rest was not read"
                result.note([Finding(SCHEMA, RECORDS, "records", rest)])
                break
            continue
        name = f"record {record['sequence']} ({record['identity']['nodeid']})"
        for rule_id, rule in registered().items():
            result.note(_judged(rule_id, rule, record, name))
        result.note(traces.check(record, name))
        for watcher in over_all:
            result.note(_seen(watcher, record, name))
        result.note(_of_a_shard(parts, record, name))
        ending = Ending.of(record["conclusion"])
        result.tally.add(record["identity"]["nodeid"], ending)
        junit.keep(told, junit.name_in_junit(record["identity"]["nodeid"]), ending.status, ending.level)
    else:
        bound = manifest["files"].get(RECORDS)
        result.note(files.check_digest(RECORDS, bound, seen.hexdigest()) if bound else ())
    for watcher in over_all:
        result.note(Finding(watcher.rule, *finding) for finding in watcher.finish(result.tally))
    result.note(parts.finish())
    return told


def _judged(rule_id: str, rule: RecordRule, record: dict[str, Any], name: str) -> Iterator[Finding]:
    try:
        for claimed, supported in rule(record):
            yield Finding(rule_id, name, claimed, supported)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        yield _not_judged(rule_id, name, error)


def _seen(watcher: RunRule, record: dict[str, Any], name: str) -> Iterator[Finding]:
    try:
        watcher.see(record)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        yield _not_judged(watcher.rule, name, error)


def _of_a_shard(parts: merged.Merged, record: dict[str, Any], name: str) -> Iterator[Finding]:
    try:
        yield from parts.see(record, name)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        yield _not_judged(merged.ORIGINS, name, error)


def _not_judged(rule_id: str, name: str, error: Exception) -> Finding:
    """A record over which a rule stumbles keeps the schema and still makes no sense: it is not passed over."""
    text = f"it cannot be judged: {type(error).__name__}: {error}"
    return Finding(rule_id, name, "a record that can be judged", text)


def parsed(line: bytes | None) -> tuple[dict[str, Any] | None, list[str]]:
    """(record, problems): a record that breaks its schema is not judged further."""
    if line is None:
        return None, ["line too long"]
    try:
        record = parse(line)
    except BadJson as error:
        return None, [str(error)]
    problems = list(violations("record", record, brief=len(line) > BRIEF_FROM_BYTES))
    return (None if problems else record), problems


def records(directory: Path) -> Iterator[dict[str, Any]]:
    """Every record that keeps the schema, in order; whether they are sound is for `audit` to say. Errors: Unusable."""
    check_directory(directory)
    for _, line in read_lines(directory / RECORDS):
        record, _ = parsed(line)
        if record is not None:
            yield record
