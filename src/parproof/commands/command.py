"""What a command is, and what its exit status means."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parproof.errors import UsageError

OK, FINDINGS, UNUSABLE = 0, 1, 2
BROKEN_PIPE = 141
"""What a shell tells of a program that SIGPIPE ended."""
Argument = tuple[tuple[str, ...], dict[str, Any]]
JUNIT: Argument = (
    ("--junit",),
    {
        "type": Path,
        "action": "append",
        "metavar": "FILE",
        "help": "compare with JUnit of the same run; of merged evidence once for each shard",
    },
)
DIGEST: Argument = (("--digest",), {"metavar": "HEX", "help": "what pytest printed at the end of that run"})
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


def digest_of(told: str | None) -> str | None:
    """As pytest prints it. Errors: UsageError for what can be no digest, so that a slip is not taken for a forgery."""
    if told is not None and not re.fullmatch("[0-9a-fA-F]{64}", told):
        raise UsageError(
            f"{told[:80]!r} is no sha256",
            expected="all 64 hexadecimal digits that pytest printed",
            where="--digest",
        )
    return told.lower() if told else None
