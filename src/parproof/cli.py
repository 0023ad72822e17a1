"""The command line: what can be asked of evidence, registry, mutants and this machine. No torch, no pytest."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from parproof import __version__
from parproof.commands import (
    audit,
    compare,
    consume,
    export,
    faults,
    importing,
    merge,
    preflight,
    report,
    seal,
    status,
)
from parproof.commands.command import BROKEN_PIPE, OK, UNUSABLE, Command
from parproof.errors import ParproofError
from parproof.evidence.audit import Unusable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status. Errors become one line on stderr, never a traceback."""
    options = _parser().parse_args(arguments)
    try:
        status = int(options.run(options))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Whoever read our output has had enough. The answer was not told to its end, so the status says neither yes nor no.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return BROKEN_PIPE
    except (ParproofError, Unusable, OSError) as error:
        print(f"parproof {options.command}: {error}", file=sys.stderr)
        return UNUSABLE


def _version(_: argparse.Namespace) -> int:
    print(f"parproof {__version__}")
    return OK


# In the order in which they are shown.
COMMANDS = (
    audit.COMMAND,
    compare.COMMAND,
    report.COMMAND,
    status.COMMAND,
    consume.COMMAND,
    merge.COMMAND,
    seal.COMMAND,
    export.COMMAND,
    importing.COMMAND,
    faults.COMMAND,
    preflight.COMMAND,
    Command("version", _version, "the version of this package"),
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="parproof", description=__doc__)
    parser.add_argument("--version", action="version", version=f"parproof {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for told in COMMANDS:
        command = commands.add_parser(told.name, help=told.help, description=told.help)
        for names, given in told.arguments:
            command.add_argument(*names, **given)
        command.set_defaults(run=told.run)
    return parser
