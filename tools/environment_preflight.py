"""Can this machine run a profile? `parproof preflight` under the name that the source documents use.

    python tools/environment_preflight.py --profile PAR-CUDA-MECHANISM [--output FILE]

With --output the answer is also written as JSON; a file that exists is not overwritten.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from pathlib import Path

from parproof.cli import main as parproof


def main() -> int:
    """Exit status of parproof preflight: 0 ready, 1 not, 2 unusable."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", default="PAR-CPU")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    status = parproof(["preflight", "--profile", options.profile])
    if options.output is not None and status != 2:
        answer = io.StringIO()
        with contextlib.redirect_stdout(answer):
            parproof(["preflight", "--profile", options.profile, "--json"])
        try:
            with options.output.open("x", encoding="utf-8") as file:
                file.write(answer.getvalue())
        except OSError as error:
            print(f"environment_preflight: cannot write {options.output}: {error}", file=sys.stderr)  # noqa: T201
            return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
