"""New files, whole or not at all, and never over something that is there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from parproof.errors import UsageError


def check_new(paths: list[Path], evidence: Path) -> None:
    """Before any work: may these files be written? Errors: UsageError."""
    inside = evidence.resolve()
    for path in paths:
        if os.path.lexists(path):
            raise UsageError(
                f"{path} is there already",
                expected="a new file: nothing is overwritten",
                where="report",
                next_step="name another file, or move the old one away",
            )
        if not path.parent.is_dir():
            raise UsageError(f"no directory {path.parent}", expected="an existing one", where="report")
        if path.resolve().is_relative_to(inside):
            raise UsageError(
                f"{path} lies in the evidence",
                expected="a place outside: the manifest binds every file of that directory",
                where="report",
            )
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("two files of one name", expected="a name for each", where="report")


def write_new(texts: Mapping[Path, str]) -> None:
    """All of them under hidden names first, then each takes its own; a failure leaves none. Errors: UsageError, OSError."""
    hidden = {path: path.with_name(f".{path.name}.partial-{os.getpid()}") for path in texts}
    named: list[Path] = []
    try:
        for path, text in texts.items():
            with hidden[path].open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        for path in texts:
            _name(hidden[path], path)
            named.append(path)
    except BaseException:
        for path in named:
            path.unlink(missing_ok=True)
        raise
    finally:
        for path in hidden.values():
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _name(hidden: Path, path: Path) -> None:
    """A link takes a free name only, in one step; where there are no links, a new file is made first."""
    try:
        os.link(hidden, path)
    except FileExistsError as error:
        raise UsageError(
            f"{path} appeared meanwhile", expected="a new file: nothing is overwritten", where="report"
        ) from error
    except OSError:
        with path.open("x"):
            hidden.replace(path)
