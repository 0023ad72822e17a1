"""`parproof seal DIR`: a statement about an evidence directory, signed where a key is given."""

from __future__ import annotations

import argparse
from pathlib import Path

from parproof.commands.command import FINDINGS, OK, Command, show_progress
from parproof.evidence.seal.private_keys import VARIABLE, passphrase_from
from parproof.evidence.seal.sealing import SEAL_SUFFIX, STATEMENT_SUFFIX, seal


def _seal(options: argparse.Namespace) -> int:
    passphrase = passphrase_from(options.passphrase_file)
    sealed = seal(options.directory, options.output, options.key or (), passphrase, show_progress)
    for finding in sealed.findings:
        print(finding)
    if sealed.findings:
        print(f"{len(sealed.findings)} findings: evidence that does not pass its audit is not sealed")
        return FINDINGS
    by = f"signed by {', '.join(sealed.keyids)}" if sealed.keyids else "not signed"
    print(f"{sealed.path}: {sealed.result}, {by}")
    return OK


COMMAND = Command(
    "seal",
    _seal,
    "an in-toto statement about an evidence directory, signed where a key is given: 0 written, 1 findings, 2 refused",
    (
        (("directory",), {"type": Path}),
        (
            ("--key",),
            {
                "type": Path,
                "action": "append",
                "metavar": "FILE",
                "help": "Ed25519, PEM or OpenSSH; several keys make several signatures",
            },
        ),
        (
            ("--passphrase-file",),
            {
                "type": Path,
                "metavar": "FILE",
                "help": f"else {VARIABLE} is read, or whoever sits at the terminal is asked",
            },
        ),
        (
            ("--output",),
            {
                "type": Path,
                "metavar": "FILE",
                "help": f"a new file; else DIR{SEAL_SUFFIX}, or DIR{STATEMENT_SUFFIX} without a key",
            },
        ),
    ),
)
