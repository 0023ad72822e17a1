"""Writing the files of fixtures/ from the tools that make them, or saying which differ from what is committed."""

from __future__ import annotations

import argparse
import filecmp
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def write_or_check(write_all: Callable[[Path], None], target: Path, description: str | None) -> int:
    """The command line of such a tool: write all anew, or with --check end with 1 where something differs."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / target.name
        write_all(made)
        if check:
            found = differences(made, target)
            print("\n".join(found) or "fixtures are up to date")  # noqa: T201
            return 1 if found else 0
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target)
    return 0


def differences(left: Path, right: Path) -> list[str]:
    """Files that differ or are on one side only."""
    names = {p.relative_to(side) for side in (left, right) for p in side.rglob("*") if p.is_file()}
    return sorted(
        str(n)
        for n in names
        if not ((left / n).is_file() and (right / n).is_file() and filecmp.cmp(left / n, right / n, False))
    )
