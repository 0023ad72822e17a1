"""Writing a directory of small files: whole or not at all, and never over anything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from parproof.errors import UsageError
from parproof.evidence.new_file import refuse_inside


def check_output(output: Path, *, outside: Path | None = None) -> None:
    """Before any work is done. Errors: UsageError.

    outside   a directory that may not hold the output: evidence that grows a file no longer passes its audit
    """
    if output.is_symlink() or (output.exists() and (not output.is_dir() or any(output.iterdir()))):
        raise UsageError(
            f"{output} exists and is not empty, or is no directory",
            expected="a new or empty directory: nothing is overwritten",
            where="--output",
            next_step="name another directory, or move the old one away",
        )
    if outside is not None:
        refuse_inside(output, [outside], option="--output")


def write_directory(output: Path, texts: Mapping[str, str]) -> None:
    """Write to a hidden sibling, then take the name in one step. Errors: OSError; nothing is left then."""
    partial = output.with_name(f".{output.name}.partial-{os.getpid()}")
    partial.parent.mkdir(parents=True, exist_ok=True)
    partial.mkdir()
    try:
        for name, text in texts.items():
            with (partial / name).open("w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        # Takes the place of an empty directory, and of no other.
        partial.rename(output)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
