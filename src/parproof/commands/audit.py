"""`parproof audit DIR`: derive everything again from an evidence directory."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from parproof.commands.command import DIGEST, JSON, JUNIT, OK, Command, digest_of, show_progress
from parproof.errors import ParproofError
from parproof.evidence import audit as auditing
from parproof.evidence.audit.findings import printable
from parproof.evidence.audit.sealed import Asked


def _audit(options: argparse.Namespace) -> int:
    if options.rules and options.json:
        print(json.dumps(auditing.rules()))
        return OK
    if options.rules:
        for rule, sentence in auditing.rules().items():
            print(f"{rule:28} {sentence}")
        return OK
    digest = digest_of(options.digest)
    if options.directory is None:
        raise ParproofError("no evidence directory was named", expected="parproof audit DIR", where="audit")
    result = auditing.audit(options.directory, options.junit, digest, show_progress, seal=_asked(options))
    if options.json:
        findings = [vars(finding) for finding in result.findings]
        print(
            json.dumps(
                {
                    "num_records": result.num_records,
                    "counts": result.counts,
                    "levels": result.levels,
                    "flaky": result.tally.flaky,
                    "signers": result.signers,
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
    for signer in result.signers:
        print(printable(f"seal signed by {signer}"))
    for nodeid in result.tally.flaky:
        print(printable(f"flaky: {nodeid}: attempts ended differently, the worst counts"))
    return result.exit_status


def _asked(options: argparse.Namespace) -> Asked | None:
    """The seal to verify; keys are read first, since without them nothing in it can be believed."""
    if options.verify is None:
        if options.seal is not None:
            raise ParproofError(
                "a seal was named, but no keys", expected="--verify KEYS", where="audit --seal"
            )
        return None
    from parproof.evidence.seal.public_keys import read_public_keys
    from parproof.evidence.seal.sealing import default_path

    return Asked(options.seal or default_path(options.directory), read_public_keys(options.verify))


COMMAND = Command(
    "audit",
    _audit,
    "derive everything again from an evidence directory: 0 clean, 1 findings, 2 unusable",
    (
        (("directory",), {"type": Path, "nargs": "?"}),
        JUNIT,
        DIGEST,
        (
            ("--verify",),
            {"type": Path, "metavar": "KEYS", "help": "verify the seal: PEM, OpenSSH lines, allowed_signers"},
        ),
        (("--seal",), {"type": Path, "metavar": "FILE", "help": "the seal, else DIR.seal.json"}),
        (("--rules",), {"action": "store_true", "help": "list the rules and stop"}),
        JSON,
    ),
)
