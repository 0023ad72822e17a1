"""Evidence that something else is built on has to be sound first; one refusal for all that build on it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from parproof.errors import UsageError
from parproof.evidence.audit.run import audit


def require_sound(
    directory: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    what: str = "the evidence",
    ignoring: Collection[str] = (),
) -> None:
    """Audit a directory before it is used.

    what      how the refusal calls it
    ignoring  rules whose findings do not count here
    Errors    UsageError, with the number of findings and the first; Unusable when there is nothing to audit
    Cost      an audit of the directory
    """
    findings = [found for found in audit(directory, progress=progress).findings if found.rule not in ignoring]
    if findings:
        number = f"{len(findings)} finding{'s' if len(findings) > 1 else ''}"
        raise UsageError(
            f"{what} does not pass its audit ({number}), first: {findings[0]}",
            expected="evidence without findings: what is not sound is not built on",
            where=str(directory),
            next_step=f"parproof audit {directory}",
        )
