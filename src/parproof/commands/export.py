"""`parproof export DIR --format distributed-benchmark/v1 --output OUT`: evidence in the published contract."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from parproof.commands.command import JSON, OK, Command
from parproof.evidence.exchange import exporting
from parproof.evidence.exchange.contract import SCHEMA_VERSION


def _export(options: argparse.Namespace) -> int:
    made = exporting.export(options.directory, options.output, options.projects)
    if options.json:
        print(json.dumps({"written": list(made.documents), "refused": made.refused}))
        return OK
    for name, document in made.documents.items():
        print(
            f"{options.output / name}: {document['metrics']['kind']}, {document['evidence_level']}, not evaluated"
        )
    for project, why in made.refused.items():
        print(f"{project}: not written, {why}")
    return OK


COMMAND = Command(
    "export",
    _export,
    "evidence that passes its audit, as documents of a published contract; never a decision, never a higher level",
    (
        (("directory",), {"type": Path, "metavar": "DIR"}),
        (("--format",), {"required": True, "choices": (SCHEMA_VERSION,)}),
        (("--output",), {"required": True, "type": Path, "metavar": "OUT", "help": "a new directory"}),
        (
            ("--project",),
            {
                "dest": "projects",
                "action": "append",
                "default": [],
                "metavar": "ID",
                "help": "default: all four",
            },
        ),
        JSON,
    ),
)
