"""A file that was not there before: whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from parproof.errors import UsageError


def refuse_taken(path: Path, *, option: str) -> None:
    """Say before any work is done that the name is taken. Errors: UsageError."""
    if path.exists() or path.is_symlink():
        raise _taken(path, option)


def write_new(path: Path, data: bytes, *, option: str) -> None:
    """Write to a hidden sibling, which then takes the name if nobody has it.

    option   where the name came from, for errors
    Errors   UsageError when something has the name already, or it cannot be written
    """
    hidden = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        with hidden.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # A link fails where the name was taken meanwhile; a rename would replace what has it.
        os.link(hidden, path)
    except FileExistsError as error:
        raise _taken(path, option) from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", where=option, next_step="name another place"
        ) from error
    finally:
        hidden.unlink(missing_ok=True)


def _taken(path: Path, option: str) -> UsageError:
    return UsageError(
        f"{path} exists",
        expected="a new file: nothing is overwritten",
        where=option,
        next_step="name another file, or move the old one away",
    )
