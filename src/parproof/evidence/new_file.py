"""Files that were not there before: whole or not at all, never over something, never inside bound evidence."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from parproof.errors import UsageError


def refuse_taken(path: Path, *, option: str) -> None:
    """Say before any work is done that the name is taken. Errors: UsageError."""
    if os.path.lexists(path):
        raise _taken(path, option)


def refuse_inside(
    path: Path,
    directories: Iterable[Path],
    *,
    option: str,
    kind: str = "evidence",
    of_what: str = "of what is read",
) -> None:
    """Say before any work is done that evidence would grow a file, and no longer pass its audit. Errors: UsageError.

    kind, of_what   what the directories are to the caller, for the error
    """
    for directory in directories:
        if path.resolve().is_relative_to(directory.resolve()):
            raise UsageError(
                f"{path} is inside the {kind} {directory}, of which the manifest binds every file",
                expected=f"a place outside {of_what}",
                where=option,
            )


def write_new(path: Path, data: bytes, *, option: str) -> None:
    """One file; see write_all."""
    write_all({path: data}, option=option)


def write_all(contents: Mapping[Path, bytes], *, option: str) -> None:
    """All of them under hidden names first, then each takes its own if nobody has it; a failure leaves none.

    option   where the names came from, for errors
    Errors   UsageError when something has a name already, or it cannot be written
    """
    hidden = {path: path.with_name(f".{path.name}.partial-{os.getpid()}") for path in contents}
    named: list[Path] = []
    path = next(iter(contents), Path())
    try:
        for path, data in contents.items():
            with hidden[path].open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        for path in contents:
            _name(hidden[path], path)
            named.append(path)
    except BaseException as error:
        for taken in named:
            taken.unlink(missing_ok=True)
        if isinstance(error, FileExistsError):
            raise _taken(path, option) from error
        if isinstance(error, OSError):
            raise UsageError(
                f"{path} cannot be written: {error.strerror}", where=option, next_step="name another place"
            ) from error
        raise
    finally:
        for left in hidden.values():
            with contextlib.suppress(OSError):
                left.unlink(missing_ok=True)


def _name(hidden: Path, path: Path) -> None:
    """A link takes a free name only, in one step; where there are no links, a new file is made first."""
    try:
        os.link(hidden, path)
    except FileExistsError:
        raise
    except OSError:
        with path.open("x"):
            hidden.replace(path)


def _taken(path: Path, option: str) -> UsageError:
    return UsageError(
        f"{path} exists",
        expected="a new file: what is there is never overwritten",
        where=option,
        next_step="name another file, or move the old one away",
    )
