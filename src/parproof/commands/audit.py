"""`parproof audit DIR`: derive everything again from an evidence directory."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from parproof.commands.command import JSON, OK, Command, show_progress
from parproof.errors import ParproofError
from parproof.evidence import audit as auditing
from parproof.evidence.audit.findings import printable


def _audit(options: argparse.Namespace) -> int:
    if options.rules:
        for rule, sentence in auditing.rules().items():
            print(f"{rule:28} {sentence}")
        return OK
    if options.directory is None:
        raise ParproofError("no evidence directory was named", expected="parproof audit DIR", where="audit")
    result = auditing.audit(options.directory, options.junit, options.digest, show_progress)
    if options.json:
        findings = [vars(finding) for finding in result.findings]
        print(
            json.dumps(
                {
                    "num_records": result.num_records,
                    "counts": result.counts,
                    "levels": result.levels,
                    "flaky": result.tally.flaky,
                    "findings": findings,
                }
            )
        )
        return result.exit_status
    for finding in result.findings:
        print(finding)
    counts = ", ".join(f"{number} {name}" for name, number in sorted(result.counts.items()))
    levels = ", ".join(f"{number} {name}" for name, number in sorted(result.levels.items()))
    num_tests = sum(result.counts.values())
    of_tests = f" of {num_tests} tests" if num_tests != result.num_records else ""
    print(
        f"{result.num_records} records{of_tests} ({counts}); levels: {levels}; {len(result.findings)} findings"
    )
    for nodeid in result.tally.flaky:
        print(printable(f"flaky: {nodeid}: attempts ended differently, the worst counts"))
    return result.exit_status


COMMAND = Command(
    "audit",
    _audit,
    "derive everything again from an evidence directory: 0 clean, 1 findings, 2 unusable",
    (
        (("directory",), {"type": Path, "nargs": "?"}),
        (("--junit",), {"type": Path, "metavar": "FILE", "help": "compare with JUnit of the same run"}),
        (("--digest",), {"metavar": "HEX", "help": "what pytest printed at the end of that run"}),
        (("--rules",), {"action": "store_true", "help": "list the rules and stop"}),
        JSON,
    ),
)
