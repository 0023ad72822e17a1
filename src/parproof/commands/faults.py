"""`parproof faults`: the planted mutants; with --run the kill matrix."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from parproof.commands.command import FINDINGS, JSON, OK, Command, checkout
from parproof.errors import ParproofError
from parproof.mutants import Mutant, catalogue


def _faults(options: argparse.Namespace) -> int:
    chosen = [m for m in catalogue() if options.experiment in (None, m.experiment)]
    if not chosen:
        known = ", ".join(sorted({mutant.experiment for mutant in catalogue()}))
        raise ParproofError(
            f"no mutants of {options.experiment}", expected=f"one of {known}", where="faults --experiment"
        )
    if not options.run_them:
        rows = [
            {
                "mutant": m.name,
                "experiment": m.experiment,
                "claims": list(m.kills),
                "lie": m.lie,
                "modelled_on": m.modelled_on,
            }
            for m in chosen
        ]
        if options.json:
            print(json.dumps(rows, ensure_ascii=False))
        else:
            for m in chosen:
                print(f"{m.experiment:24} {m.name:32} {' '.join(m.kills):12} {m.lie} ({m.modelled_on})")
            print(f"{len(chosen)} mutants, {sum(len(m.kills) for m in chosen)} (mutant, claim) pairs")
            for line in _origins(chosen):
                print(line)
        return OK
    return _kill_matrix(options)


def _origins(chosen: Sequence[Mutant]) -> Iterator[str]:
    """How many mutants of each experiment are modelled on a fault that somebody reported in public."""
    for experiment in sorted({mutant.experiment for mutant in chosen}):
        counts = Counter(mutant.origin for mutant in chosen if mutant.experiment == experiment)
        yield (
            f"{experiment}: {counts['public report']} of {counts.total()} modelled on public reports, "
            f"{counts['address']} on an address, {counts['common slip']} on common slips"
        )


def _kill_matrix(options: argparse.Namespace) -> int:
    """Run the claims against the mutants in a pytest of its own, and print who found what."""
    root = checkout()
    if root is None:
        raise ParproofError(
            "the tests are not here", expected="a checkout of the project", where="faults --run"
        )
    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder) / "kills.json"
        command = [
            sys.executable,
            "-m",
            "pytest",
            *_modules(root, options.experiment),
            "-m",
            "cpu",
            "-q",
            "-p",
            "no:cacheprovider",
        ]
        command += ["--parproof-mutants", "--parproof-kill-matrix", str(matrix)]
        done = subprocess.run(command, cwd=root, stdout=sys.stderr, check=False)
        if not matrix.exists():
            raise ParproofError(
                f"pytest ended with {done.returncode} and wrote no matrix", where="faults --run"
            )
        rows = [r for r in json.loads(matrix.read_text()) if options.experiment in (None, r["experiment"])]
    if options.json:
        print(json.dumps(rows, ensure_ascii=False))
    else:
        for row in rows:
            verdict = "killed" if row["killed"] else "SURVIVED"
            print(
                f"{verdict:9} {row['experiment']}/{row['claim']:4} {row['mutant']:32} {row['witness'] or row['lie']}"
            )
        print(f"{sum(r['killed'] for r in rows)} of {len(rows)} killed")
    return OK if rows and all(row["killed"] for row in rows) else FINDINGS


def _modules(root: Path, experiment: str | None) -> list[str]:
    """Test modules of the experiment, or of all."""
    paths = [
        p
        for folder in ("mechanisms", "projects")
        for p in sorted((root / "tests" / folder).glob("test_*.py"))
    ]
    wanted = f'experiment("{experiment}")' if experiment else "mark.experiment("
    found = [str(path.relative_to(root)) for path in paths if wanted in path.read_text("utf-8")]
    if not found:
        known = sorted({mutant.experiment for mutant in catalogue()})
        raise ParproofError(
            f"no tests of {experiment}", expected=f"one of {', '.join(known)}", where="faults --run"
        )
    return found


COMMAND = Command(
    "faults",
    _faults,
    "the planted mutants; with --run the kill matrix",
    (
        (
            ("--run",),
            {"dest": "run_them", "action": "store_true", "help": "run the cpu lane of this checkout"},
        ),
        (("--experiment",), {"metavar": "ID"}),
        JSON,
    ),
)
