"""Can this machine run a profile? `parproof preflight` under the name that the source documents use.

    python tools/environment_preflight.py --profile PAR-CUDA-MECHANISM [--output FILE]

With --output the answer is also written as JSON; a file that exists is not overwritten.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from pathlib import Path

from parproof.cli import main as parproof
from parproof.commands.preflight import in_words


def main() -> int:
    """Exit status of parproof preflight: 0 ready, 1 not, 2 unusable."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", default="PAR-CPU")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    try:
        # Before the checks, which take seconds: an answer that cannot be kept is not worth waiting for.
        file = options.output.open("x", encoding="utf-8") if options.output else None
    except OSError as error:
        print(f"environment_preflight: cannot write {options.output}: {error}", file=sys.stderr)  # noqa: T201
        return 2
    answer, status = io.StringIO(), 2
    try:
        with contextlib.redirect_stdout(answer):
            status = parproof(["preflight", "--profile", options.profile, "--json"])
    finally:
        if file is not None:
            with file:
                file.write(answer.getvalue())
            if status == 2:  # nothing to keep, also when it was interrupted
                options.output.unlink()
    for check in json.loads(answer.getvalue() or "[]"):
        print(in_words(**check))  # noqa: T201
    return status


if __name__ == "__main__":
    sys.exit(main())
