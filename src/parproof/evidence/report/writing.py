"""Where a report may be written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from parproof.errors import UsageError
from parproof.evidence.new_file import refuse_inside, refuse_taken, write_all


def check_new(paths: list[Path], evidence: Path) -> None:
    """Before any work: may these files be written? Errors: UsageError."""
    for path in paths:
        refuse_taken(path, option="report")
        if not path.parent.is_dir():
            raise UsageError(f"no directory {path.parent}", expected="an existing one", where="report")
        refuse_inside(path, [evidence], option="report")
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("two files of one name", expected="a name for each", where="report")


def write_new(texts: Mapping[Path, str]) -> None:
    """All or none. Errors: UsageError."""
    write_all({path: text.encode() for path, text in texts.items()}, option="report")
