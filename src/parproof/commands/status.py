"""`parproof status`: the asset table, with states computed from tests and evidence."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from parproof.commands.command import JSON, OK, Command, checkout
from parproof.evidence import status


def _status(options: argparse.Namespace) -> int:
    rows = status.table(options.evidence, checkout=checkout())
    print(json.dumps(rows, ensure_ascii=False) if options.json else status.markdown(rows, options.lang))
    return OK


COMMAND = Command(
    "status",
    _status,
    "the asset table, with states computed from tests and evidence",
    (
        (("--evidence",), {"type": Path, "metavar": "DIR"}),
        (("--lang",), {"choices": ("en", "zh"), "default": "en"}),
        JSON,
    ),
)
