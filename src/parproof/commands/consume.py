"""`parproof consume DIR`: what a project or the decision page may take from evidence."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from parproof.commands.command import FINDINGS, JSON, OK, Command
from parproof.evidence import consume


def _consume(options: argparse.Namespace) -> int:
    consumed = consume.consume(options.directory, options.consumer)
    if options.json:
        print(json.dumps([vars(edge) | {"answers": edge.answers} for edge in consumed]))
    else:
        for edge in consumed:
            print(f"{'usable ' if edge.usable else 'refused'} {edge.producer} as {edge.role}: {edge.reason}")
        print(f"answered risks: {', '.join(sorted(consume.answered_risks(consumed))) or 'none'}")
    return OK if all(edge.usable for edge in consumed) else FINDINGS


COMMAND = Command(
    "consume",
    _consume,
    "what a project or the decision page may take from evidence",
    (
        (("directory",), {"type": Path}),
        (("--for",), {"dest": "consumer", "default": "PAR-STRATEGY-DECISION", "metavar": "ID"}),
        JSON,
    ),
)
