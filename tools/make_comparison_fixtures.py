"""Writes fixtures/comparison: three runs a side of a benchmark that never took place, for tests of `compare`.

    python tools/make_comparison_fixtures.py          # rewrite them all
    python tools/make_comparison_fixtures.py --check  # fail if what is committed differs

They go through the real writer, with made-up samples, clock and machine. No GPU took part: every label says so.
Tests load this file for `outcome`, `timing` and `write`.
"""

from __future__ import annotations

import datetime
import itertools
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from parproof.evidence import environment, store
from parproof.evidence.record import Outcome, build
from parproof.ledger.rows import Row

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "fixtures" / "comparison"
LABEL = "made for tests: no GPU took part"
ACCELERATOR = "made-up accelerator (for tests)"
MODULE = "tests/mechanisms/test_nccl_collective.py"
EXPERIMENT = "PAR-NCCL-COLLECTIVE"
CLOCK = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
NUM_REPEATS, RUNS_A_SIDE = 12, 3


def run_of(backend: str = "nccl", world_size: int = 2) -> dict[str, Any]:
    """The observation of ranks that never were, on GPUs for nccl and on CPU for gloo."""
    device = "cuda:{}" if backend == "nccl" else "cpu"
    ranks = [
        {
            "rank": r,
            "local_rank": r,
            "pid": 9 + r,
            "host": "host0",
            "hostname": "made-up",
            "device": device.format(r),
        }
        for r in range(world_size)
    ]
    told = {
        "launcher": "local",
        "backend": backend,
        "world_size": world_size,
        "ranks": ranks,
        "host_kind": "real",
    }
    return told | {
        "num_reports": world_size,
        "calls_seen": world_size,
        "ledger": True,
        "ledger_complete": True,
    }


def ledger(size: int = 64, calls: int = 1, world_size: int = 2) -> list[list[Row]]:
    """So many all-reduces of so many float32 on every rank."""
    members = tuple(range(world_size))
    row = Row(0, "all_reduce", "single", "0", members, "float32", ((size,),), 4 * size, 4 * size, "sum")
    return [[row] * calls] * world_size


def timing(
    name: str, seed: int, *, scale: float = 1.0, repeats: int = NUM_REPEATS, spread: float = 0.01
) -> dict[str, Any]:
    """About `scale` milliseconds a call, log-normal; rank 1 is the slower one."""
    chance = random.Random(seed)
    calls = [1e-3 * scale * chance.lognormvariate(0.0, spread) for _ in range(repeats)]
    samples = [[round(0.9 * call, 9) for call in calls], [round(call, 9) for call in calls]]
    return {"name": name, "samples_s": samples, "warmup": 2}


def outcome(test: str, claim: str = "C1", *, backend: str = "nccl", **changes: Any) -> Outcome:
    """A test that passed; `changes` are fields of Outcome."""
    facts = run_of(backend)
    rows = changes.pop("rows", ledger())
    facts["calls_seen"] = sum(map(len, rows))
    told: dict[str, Any] = {
        "experiment": EXPERIMENT,
        "claims": (claim,),
        "lane": "cuda2" if backend == "nccl" else "cpu",
        "workload_id": "made_up",
        "workload": {"size": 64, "dtype": "float32"},
        "subject": {"name": "reference", "address": "parproof.subjects.reference:SUBJECT"},
        "model": "nccl" if backend == "nccl" else None,
        "runs": [(facts, rows)],
    }
    return Outcome(f"{MODULE}::{test}", changes.pop("status", "ok"), 0.1, **(told | changes))


def write(
    path: Path,
    outcomes: Sequence[Outcome],
    *,
    run_id: str = "",
    source: str = "0",
    dirty: bool = False,
    accelerator: str | None = ACCELERATOR,
    factors: Mapping[str, str | int] | None = None,
) -> Path:
    """A sealed directory. run_id: any word, by default the path's; factors: «packages.torch» → value, over the defaults."""
    described = _environment(factors or {})
    digits = run_id or path.name
    seconds = itertools.count()  # each look at the clock is a second after the last: start, every record, end
    tree = {"commit": source * 40, "dirty": dirty, "fingerprint": source * 64}
    with (
        mock.patch.object(
            store.secrets, "token_hex", return_value=digits.encode().hex()[-32:].rjust(32, "0")
        ),
        mock.patch.object(store, "now", side_effect=lambda: _at(next(seconds))),
        mock.patch.object(environment, "describe", return_value=described),
        mock.patch.object(environment, "source_tree", return_value=tree),
    ):
        sink = store.EvidenceStore(path, root=ROOT, command=["pytest", "--evidence", "evidence"], label=LABEL)
        sink.open()
        written = [
            sink.add(_placed(build(_timed(one, number)), accelerator, described["machine"]["hostname"]))
            for number, one in enumerate(outcomes)
        ]
        bad = [
            r["conclusion"]["status"] in ("failed", "blocked")
            and not r["conclusion"]["expected_nonconformance"]
            for r in written
        ]
        collected = list(dict.fromkeys(record["identity"]["nodeid"] for record in written))
        sink.seal(
            collected=collected,
            collection_errors=[],
            num_deselected=0,
            exit_status=int(any(bad)),
            complete=True,
        )
    return path


def _at(second: float) -> str:
    """On the made-up clock."""
    return (CLOCK + datetime.timedelta(seconds=second)).isoformat(timespec="microseconds")


def _timed(one: Outcome, number: int) -> Outcome:
    """Between the record before it and its own."""
    return replace(one, started=_at(number + 0.2), ended=_at(number + 0.8))


def _placed(record: dict[str, Any], accelerator: str | None, machine: str) -> dict[str, Any]:
    """On that machine, its ranks too."""
    runs = (record["observation"] or {"runs": ()})["runs"]
    for ranks in (*(run["ranks"] for run in runs), record["topology"]["ranks"] or ()):
        for rank in ranks:
            rank["hostname"] = machine
    if accelerator and record["communication"]["backend"] == "nccl":
        record["topology"]["accelerator"] = accelerator
        del record["not_collected"]["topology.accelerator"]
    return record


def _environment(factors: Mapping[str, str | int]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "schema": environment.SCHEMA,
        "machine": {
            "hostname": "made-up",
            "system": "Linux",
            "kernel": "6.1",
            "architecture": "x86_64",
            "cpu_model": "made-up CPU (for tests)",
            "num_cpus": 8,
            "memory_bytes": 1 << 36,
        },
        "python": {"version": "3.11.7", "implementation": "CPython"},
        "packages": {"parproof": "0.1.0", "torch": "2.13.0", "pytest": "9.2.0"},
        "variables": {},
    }
    for name, value in factors.items():
        group, _, part = name.partition(".")
        described[group][part] = value
    return described


def benchmark(seed: int, *, scale: float = 1.0, size: int = 64, slow: float = 1.0) -> list[Outcome]:
    """A value claim, a traffic claim, and two timings; `scale` is of the first, `slow` of the second."""
    times = [timing("all_reduce 256 bytes", 10 * seed, scale=scale)]
    times.append(timing("all_reduce 64 MiB", 10 * seed + 1, scale=40 * slow))
    return [
        outcome("test_c1[reference-cuda2]"),
        outcome("test_c7[reference-cuda2]", "C7", rows=ledger(size)),
        outcome("test_c8[reference-cuda2]", "C8", times=times),
    ]


def runs() -> Iterator[tuple[str, list[Outcome], str]]:
    """(name, tests, source): a baseline, and a candidate whose small calls take four fifths of the time."""
    for number in range(1, RUNS_A_SIDE + 1):
        yield f"baseline-{number}", benchmark(number), "0"
        yield f"candidate-{number}", benchmark(100 + number, scale=0.8), "1"


def write_all(target: Path) -> None:
    """All runs."""
    for name, outcomes, source in runs():
        write(target / name, outcomes, source=source)


if __name__ == "__main__":
    from fixture_files import write_or_check

    sys.exit(write_or_check(write_all, FIXTURES, __doc__))
