"""One pass over an evidence directory: what the audit says of it, and what can be read of it, sound or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parproof.evidence.attempts import Ending
from parproof.evidence.audit import AuditResult, audit
from parproof.evidence.audit.findings import Unusable
from parproof.evidence.audit.reading import read_json, read_lines
from parproof.evidence.audit.run import parsed
from parproof.evidence.schemas import violations
from parproof.evidence.store import ENVIRONMENT, MANIFEST, RECORDS

STATUSES = ("ok", "failed", "known", "blocked", "skipped")
MAX_UNREADABLE = 50


@dataclass
class Evidence:
    """What a report is made of.

    manifest, environment   None where they break their schema: then nothing in them can be relied on
    unreadable              (line, why) of records that cannot be shown; at most MAX_UNREADABLE, num_unreadable in all
    """

    directory: Path
    result: AuditResult
    manifest: dict[str, Any] | None
    environment: dict[str, Any] | None
    unreadable: list[tuple[int, str]] = field(default_factory=list)
    num_unreadable: int = 0

    def records(self) -> Iterator[dict[str, Any]]:
        """Every record that keeps the schema, in the order of the file; notes those that do not."""
        path = self.directory / RECORDS
        if path.is_symlink() or not path.is_file():
            return
        self.unreadable, self.num_unreadable = [], 0
        for number, line in read_lines(path):
            record, problems = parsed(line)
            if record is not None:
                yield record
                continue
            self.num_unreadable += 1
            if len(self.unreadable) < MAX_UNREADABLE:
                self.unreadable.append((number, problems[0]))


def gather(
    directory: Path,
    junit: Path | Sequence[Path] | None = None,
    digest: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Evidence:
    """Audit the directory, then open it for reading. Errors: Unusable when there is nothing to audit."""
    result = audit(directory, junit, digest, progress)
    manifest = read_json(directory, MANIFEST)
    sound = not list(violations("manifest", manifest))
    try:
        environment = read_json(directory, ENVIRONMENT)
        readable = not list(violations("environment", environment))
    except Unusable:
        environment, readable = None, False
    return Evidence(directory, result, manifest if sound else None, environment if readable else None)


def status_of(record: dict[str, Any]) -> str:
    """The status of one attempt."""
    return shown_status(Ending.of(record["conclusion"]))


def shown_status(ending: Ending) -> str:
    """With a known defect told apart from other failures: neither is a pass."""
    return "known" if ending.status == "failed" and ending.report is not None else ending.status
