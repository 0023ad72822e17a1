"""`parproof import FILE…`: what result files of other tools can support, and why not more."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from parproof.commands.command import JSON, OK, Command
from parproof.errors import ParproofError
from parproof.evidence.exchange import importing, reasons
from parproof.evidence.exchange.contract import CONCLUSIONS
from parproof.evidence.exchange.importing import Imported


def _import(options: argparse.Namespace) -> int:
    if options.reasons:
        for kind, sentences in (("finding", reasons.FINDINGS), ("limit", reasons.LIMITS)):
            for reason, sentence in sentences.items():
                print(f"{kind:8} {reason:31} {sentence}")
        return OK
    if not options.files:
        raise ParproofError("no file was named", expected="parproof import FILE…", where="import")
    found = importing.import_files(options.files, options.output, options.evidence)
    if options.json:
        print(json.dumps([importing.describe(imported) for imported in found]))
    else:
        for imported in found:
            _show(imported)
    return importing.exit_status(found)


def _show(imported: Imported) -> None:
    told = imported.assessment
    if told is None:
        print(_line(f"{imported.name}: unreadable: {imported.why}"))
        return
    level, why = told.at_most()
    print(_line(f"{imported.name}: {told.format}, recognised by {told.recognised_by}"))
    may, may_not = CONCLUSIONS[level]
    print(_line(f"  supports at most {level}: {why}"))
    print(f"  may conclude {may}; not {may_not}")
    for reason in told.findings:
        print(f"  finding {reason}")
    for group, names in _missing(told.missing()).items():
        print(f"  missing {group}: {', '.join(names)}")
    for limit in told.limits:
        print(_line(f"  limit {limit.id} {limit.where}: {limit.sentence}"))


def _missing(places: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for place in places:
        group, _, name = place.partition(".")
        found.setdefault(group, []).append(name)
    return found


def _line(text: str) -> str:
    """Somebody else wrote these words: they must not steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)[:1000]


COMMAND = Command(
    "import",
    _import,
    "what result files of other tools can support, and why not more: 0 as claimed, 1 findings, 2 unreadable",
    (
        (("files",), {"type": Path, "nargs": "*", "metavar": "FILE"}),
        (
            ("--output",),
            {"type": Path, "metavar": "OUT", "help": "a new directory for normalised companions"},
        ),
        (
            ("--evidence",),
            {"type": Path, "metavar": "DIR", "help": "the evidence that a document of ours was made from"},
        ),
        (("--reasons",), {"action": "store_true", "help": "list every reason and stop"}),
        JSON,
    ),
)
