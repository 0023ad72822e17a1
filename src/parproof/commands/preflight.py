"""`parproof preflight`: can this machine run a profile?"""

from __future__ import annotations

import argparse
import json

from parproof.commands.command import FINDINGS, JSON, OK, Command
from parproof.evidence import preflight


def _preflight(options: argparse.Namespace) -> int:
    checks = preflight.run(options.profile)
    if options.json:
        print(json.dumps([vars(check) for check in checks]))
    else:
        for check in checks:
            mark = "ok  " if check.ok else "FAIL"
            print(
                f"{mark} {check.name}: requires {check.requirement}; found {check.found}"
                + ("" if check.ok else f"; {check.how}")
            )
    return OK if all(check.ok for check in checks) else FINDINGS


COMMAND = Command(
    "preflight",
    _preflight,
    "can this machine run a profile? 0 ready, 1 not, 2 unusable",
    ((("--profile",), {"default": "PAR-CPU", "metavar": "ID"}), JSON),
)
