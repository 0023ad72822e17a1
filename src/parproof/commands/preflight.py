"""`parproof preflight`: can this machine run a profile?"""

from __future__ import annotations

import argparse
import json

from parproof.commands.command import FINDINGS, JSON, OK, Command
from parproof.evidence import preflight


def in_words(name: str, requirement: str, found: str, ok: bool, how: str) -> str:
    """The line of one check."""
    mark = "ok  " if ok else "FAIL"
    return f"{mark} {name}: requires {requirement}; found {found}" + ("" if ok else f"; {how}")


def _preflight(options: argparse.Namespace) -> int:
    checks = preflight.run(options.profile)
    if options.json:
        print(json.dumps([vars(check) for check in checks]))
    else:
        for check in checks:
            print(in_words(**vars(check)))
    return OK if all(check.ok for check in checks) else FINDINGS


COMMAND = Command(
    "preflight",
    _preflight,
    "can this machine run a profile? 0 ready, 1 not, 2 unusable",
    ((("--profile",), {"default": "PAR-CPU", "metavar": "ID"}), JSON),
)
