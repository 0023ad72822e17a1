"""`parproof merge DIR… --output OUT`: shards of one run as one evidence directory."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from parproof.commands.command import JSON, Command, show_progress
from parproof.evidence.audit.findings import printable
from parproof.evidence.audit.reading import read_json
from parproof.evidence.merge import merge
from parproof.evidence.store import MANIFEST


def _merge(options: argparse.Namespace) -> int:
    result = merge(options.directories, options.output, label=options.label, progress=show_progress)
    manifest = read_json(options.output, MANIFEST)
    differences, findings = manifest["merged"]["differences"], [str(f) for f in result.findings]
    if options.json:
        told = {
            "digest": manifest["digest"],
            "num_records": result.num_records,
            "counts": result.counts,
            "flaky": result.tally.flaky,
            "differences": differences,
            "findings": findings,
        }
        print(json.dumps(told))
        return result.exit_status
    for text in (
        *(f"differs: {difference}" for difference in differences),
        *(f"flaky: {nodeid}: attempts ended differently, the worst counts" for nodeid in result.tally.flaky),
        *findings,
    ):
        print(printable(text))
    counts = ", ".join(f"{number} {name}" for name, number in sorted(result.counts.items()))
    shards = len(manifest["merged"]["shards"])
    tests = sum(result.counts.values())
    print(
        f"{result.num_records} records of {tests} tests ({counts}) in {shards} shards; digest {manifest['digest']}"
    )
    return result.exit_status


COMMAND = Command(
    "merge",
    _merge,
    "shards of one run as one evidence directory: 0 written and clean, 1 written with findings, 2 refused",
    (
        (("directories",), {"type": Path, "nargs": "+", "metavar": "DIR"}),
        (("--output",), {"type": Path, "required": True, "metavar": "OUT", "help": "a new directory"}),
        (("--label",), {"metavar": "TEXT", "help": "of the merged run, where the shards' labels differ"}),
        JSON,
    ),
)
