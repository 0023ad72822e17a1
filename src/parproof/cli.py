"""The command line: what can be asked of evidence, registry, mutants and this machine. No torch, no pytest."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from parproof import __version__
from parproof.errors import ParproofError
from parproof.evidence import audit as auditing
from parproof.evidence import consume, preflight, status
from parproof.mutants import catalogue

OK, FINDINGS, UNUSABLE = 0, 1, 2
_Argument = tuple[tuple[str, ...], dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status. Errors become one line on stderr, never a traceback."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except BrokenPipeError:
        # Whoever read our output has had enough; there is nobody left to tell.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return OK
    except (ParproofError, auditing.Unusable, OSError) as error:
        print(f"parproof {options.command}: {error}", file=sys.stderr)
        return UNUSABLE


# command → (what it does, its help, its arguments)
_JSON: _Argument = (("--json",), {"action": "store_true", "help": "print JSON"})
_PROFILE: _Argument = (("--profile",), {"default": "PAR-CPU", "metavar": "ID"})


def _commands() -> dict[str, tuple[Callable[[argparse.Namespace], int], str, tuple[_Argument, ...]]]:
    return {
        "audit": (
            _audit,
            "derive everything again from an evidence directory: 0 clean, 1 findings, 2 unusable",
            _AUDIT,
        ),
        "status": (
            _status,
            "the asset table, with states computed from tests and evidence",
            (
                (("--evidence",), {"type": Path, "metavar": "DIR"}),
                (("--lang",), {"choices": ("en", "zh"), "default": "en"}),
                _JSON,
            ),
        ),
        "consume": (
            _consume,
            "what a project or the decision page may take from evidence",
            (
                (("directory",), {"type": Path}),
                (("--for",), {"dest": "consumer", "default": "PAR-STRATEGY-DECISION", "metavar": "ID"}),
                _JSON,
            ),
        ),
        "faults": (_faults, "the planted mutants; with --run the kill matrix", _FAULTS),
        "preflight": (
            _preflight,
            "can this machine run a profile? 0 ready, 1 not, 2 unusable",
            (_PROFILE, _JSON),
        ),
        "version": (_version, "the version of this package", ()),
    }


_AUDIT: tuple[_Argument, ...] = (
    (("directory",), {"type": Path, "nargs": "?"}),
    (("--junit",), {"type": Path, "metavar": "FILE", "help": "compare with JUnit of the same run"}),
    (("--digest",), {"metavar": "HEX", "help": "what pytest printed at the end of that run"}),
    (("--rules",), {"action": "store_true", "help": "list the rules and stop"}),
    _JSON,
)
_FAULTS: tuple[_Argument, ...] = (
    (("--run",), {"dest": "run_them", "action": "store_true", "help": "run the cpu lane of this checkout"}),
    (("--experiment",), {"metavar": "ID"}),
    _JSON,
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="parproof", description=__doc__)
    parser.add_argument("--version", action="version", version=f"parproof {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (run, text, arguments) in _commands().items():
        command = commands.add_parser(name, help=text, description=text)
        for names, given in arguments:
            command.add_argument(*names, **given)
        command.set_defaults(run=run)
    return parser


def _version(_: argparse.Namespace) -> int:
    print(f"parproof {__version__}")
    return OK


def _audit(options: argparse.Namespace) -> int:
    if options.rules:
        for rule, sentence in auditing.rules().items():
            print(f"{rule:28} {sentence}")
        return OK
    if options.directory is None:
        raise ParproofError("no evidence directory was named", expected="parproof audit DIR", where="audit")
    result = auditing.audit(options.directory, options.junit, options.digest, _progress)
    if options.json:
        findings = [vars(finding) for finding in result.findings]
        print(
            json.dumps(
                {
                    "num_records": result.num_records,
                    "counts": result.counts,
                    "levels": result.levels,
                    "findings": findings,
                }
            )
        )
        return result.exit_status
    for finding in result.findings:
        print(finding)
    counts = ", ".join(f"{number} {name}" for name, number in sorted(result.counts.items()))
    levels = ", ".join(f"{number} {name}" for name, number in sorted(result.levels.items()))
    print(f"{result.num_records} records ({counts}); levels: {levels}; {len(result.findings)} findings")
    return result.exit_status


def _progress(done: int, total: int) -> None:
    """For somebody who watches; a file or a pipe gets the result only."""
    if sys.stderr.isatty():
        print(f"\r{done} of {total} records", end="\n" if done >= total else "", file=sys.stderr, flush=True)


def _status(options: argparse.Namespace) -> int:
    rows = status.table(options.evidence, checkout=_checkout())
    print(json.dumps(rows, ensure_ascii=False) if options.json else status.markdown(rows, options.lang))
    return OK


def _faults(options: argparse.Namespace) -> int:
    chosen = [m for m in catalogue() if options.experiment in (None, m.experiment)]
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
        return OK
    return _kill_matrix(options)


def _kill_matrix(options: argparse.Namespace) -> int:
    """Run the claims against the mutants in a pytest of its own, and print who found what."""
    root = _checkout()
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


def _consume(options: argparse.Namespace) -> int:
    consumed = consume.consume(options.directory, options.consumer)
    if options.json:
        print(json.dumps([vars(edge) for edge in consumed]))
    else:
        for edge in consumed:
            print(f"{'usable ' if edge.usable else 'refused'} {edge.producer} as {edge.role}: {edge.reason}")
    return OK if all(edge.usable for edge in consumed) else FINDINGS


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


def _preflight(options: argparse.Namespace) -> int:
    checks = preflight.run(options.profile)
    if options.json:
        print(json.dumps([vars(check) for check in checks]))
    else:
        for check in checks:
            mark = "ok  " if check.ok else "FAIL"
            print(
                f"{mark} {check.name}: requires {check.requirement}; found {check.found}"
                + ("" if check.ok else f"; {check.how}")
            )
    return OK if all(check.ok for check in checks) else FINDINGS


def _checkout() -> Path | None:
    """The checkout this package was imported from, if it was."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "tests" / "mechanisms").is_dir() else None
