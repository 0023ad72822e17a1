"""What a command is, and what its exit status means."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OK, FINDINGS, UNUSABLE = 0, 1, 2
BROKEN_PIPE = 141
"""What a shell tells of a program that SIGPIPE ended."""
Argument = tuple[tuple[str, ...], dict[str, Any]]
JSON: Argument = (("--json",), {"action": "store_true", "help": "print JSON"})


@dataclass(frozen=True)
class Command:
    """One word after `parproof`.

    run         gives the exit status: 0 the answer is good, 1 it is not, 2 there is none; errors it raises become 2
    arguments   (names, keywords) of argparse's add_argument
    """

    name: str
    run: Callable[[argparse.Namespace], int]
    help: str
    arguments: tuple[Argument, ...] = ()


def show_progress(done: int, total: int) -> None:
    """For somebody who watches; a file or a pipe gets the result only."""
    if sys.stderr.isatty():
        print(f"\r{done} of {total} records", end="\n" if done >= total else "", file=sys.stderr, flush=True)


def checkout() -> Path | None:
    """The checkout this package was imported from, if it was."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "tests" / "mechanisms").is_dir() else None
