"""`parproof compare BASELINE CANDIDATE`: what changed, what may be decided from it, and a gate for CI."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from parproof.commands.command import FINDINGS, JSON, OK, Command, show_progress
from parproof.errors import UsageError
from parproof.evidence import compare as comparing
from parproof.evidence.compare import gate, show
from parproof.evidence.new_file import refuse_inside, refuse_taken, write_new


def _compare(options: argparse.Namespace) -> int:
    if len(options.directories) not in (0, 2):
        raise UsageError(
            f"{len(options.directories)} directories",
            expected="BASELINE CANDIDATE; further runs of a side with --baseline DIR … and --candidate DIR …",
            where="compare",
        )
    baseline = [*options.directories[:1], *options.baseline]
    candidate = [*options.directories[1:], *options.candidate]
    if not baseline or not candidate:
        raise UsageError("a side without a run", expected="at least one run a side", where="compare")
    asked = comparing.Options(
        varies=_varies(options),
        experiments=frozenset(options.experiment) or None,
        threshold=options.threshold,
        alpha=options.alpha,
        goal=options.goal,
        fail_on=gate.parse(options.fail_on),
    )
    if options.output is not None:
        refuse_taken(options.output, option="--output")
        refuse_inside(
            options.output, [*baseline, *candidate], option="--output", of_what="of what is compared"
        )
    document = comparing.compare(baseline, candidate, asked, show_progress)
    if options.output is not None:
        text = json.dumps(document, indent=1, sort_keys=True) + "\n"
        write_new(options.output, text.encode(), option="--output")
    print(_printed(document, options))
    return FINDINGS if document["gate"]["failed"] else OK


def _varies(options: argparse.Namespace) -> comparing.Varies | None:
    if options.varies is None:
        if options.first is None and options.second is None:
            return None
        raise UsageError("--from or --to without --varies", expected="--varies FACTOR", where="compare")
    return comparing.Varies(options.varies, options.first, options.second)


def _printed(document: dict[str, Any], options: argparse.Namespace) -> str:
    if options.json:
        return json.dumps(document)
    return show.markdown(document) if options.markdown else show.text(document)


COMMAND = Command(
    "compare",
    _compare,
    "two runs of equal workload and hardware: 0 fine, 1 a regression that --fail-on names, 2 not comparable",
    (
        (("directories",), {"type": Path, "nargs": "*", "metavar": "BASELINE CANDIDATE"}),
        (
            ("--baseline",),
            {
                "type": Path,
                "nargs": "+",
                "action": "extend",
                "default": [],
                "metavar": "DIR",
                "help": "further runs of the baseline",
            },
        ),
        (
            ("--candidate",),
            {
                "type": Path,
                "nargs": "+",
                "action": "extend",
                "default": [],
                "metavar": "DIR",
                "help": "further runs of the candidate",
            },
        ),
        (
            ("--varies",),
            {
                "metavar": "FACTOR",
                "help": "the one factor that may differ: source, subject, packages.torch, …",
            },
        ),
        (("--from",), {"dest": "first", "metavar": "VALUE", "help": "the baseline's records of the factor"}),
        (("--to",), {"dest": "second", "metavar": "VALUE", "help": "the candidate's records of the factor"}),
        (("--experiment",), {"action": "append", "default": [], "metavar": "ID"}),
        (
            ("--threshold",),
            {
                "type": float,
                "default": 0.05,
                "metavar": "PART",
                "help": "relative change of a time that matters (0.05)",
            },
        ),
        (
            ("--alpha",),
            {
                "type": float,
                "default": 0.05,
                "metavar": "PART",
                "help": "chance of any false alarm about time (0.05)",
            },
        ),
        (("--goal",), {"choices": ("faster", "no-slower"), "default": "faster"}),
        (
            ("--fail-on",),
            {
                "action": "append",
                "default": [],
                "metavar": "KINDS",
                "help": "regress, correctness, level, traffic, time, undecided",
            },
        ),
        (("--markdown",), {"action": "store_true", "help": "print Markdown, for the summary of a CI job"}),
        (
            ("--output",),
            {"type": Path, "metavar": "FILE", "help": "write the document as JSON to a new file"},
        ),
        JSON,
    ),
)
