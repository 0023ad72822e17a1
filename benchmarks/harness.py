"""How fast is a distributed test? The rank pool beside PyTorch's own test harness, on the same rank body.

    python benchmarks/harness.py [--world 2] [--repeats 3] [--warm 40] [--json FILE]

Every round measures each way once, one after the other, so that a busy machine slows all of them; ratios are taken
within rounds. Absolute times belong to the machine they were measured on. Needs requirements/bench.txt.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GOALS = {
    "isolated test": (50.0, "PyTorch MultiProcessTestCase / pool, new ranks and group for one test"),
    "start": (20.0, "PyTorch MultiProcContinuousTest / pool, until the first test has passed"),
    "warm test": (1.0, "PyTorch MultiProcContinuousTest / pool, one more test on running ranks"),
}
LIMITS_S = {
    "pool: start of ranks": 0.2,
    "pool: overhead of a warm test": 0.010,
    "pool: a death is told": 0.5,
    "pool: stacks after the deadline": 2.0,
}
DEADLINE_S = 0.3


class Times:
    """Samples in seconds by name, in the order of the rounds."""

    def __init__(self) -> None:
        self.samples: dict[str, list[float]] = {}

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Measure what happens inside."""
        started = time.perf_counter()
        yield
        self.add(name, time.perf_counter() - started)

    def add(self, name: str, seconds: float) -> None:
        """One sample."""
        self.samples.setdefault(name, []).append(seconds)

    def ratios(self, slow: str, fast: str) -> list[float]:
        """slow / fast, round by round."""
        return [a / b for a, b in zip(self.samples[slow], self.samples[fast], strict=True)]


class PyTorch:
    """PyTorch's harness in its own process; `has_it` is False where what it needs is not installed."""

    def __init__(self, world: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("pytorch_worker.py"))],
            env=os.environ | {"PARPROOF_BENCH_WORLD": str(world)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.has_it = self._answer() == "ready"
        if not self.has_it:
            print("PyTorch's harness is not measured; pip install -r requirements/bench.txt", file=sys.stderr)

    def seconds(self, word: str) -> float:
        """What pytorch_worker.py measured."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        """End it with its ranks."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def measure(world: int, repeats: int, warm: int, pytorch: PyTorch | None) -> Times:
    """All rounds. The first start loads torch into the fork server, once a session: it is a line of its own."""
    from rank_body import program

    from parproof.ranks import RankPool
    from parproof.ranks.local import LocalLauncher

    times = Times()
    pool = RankPool(world, LocalLauncher())
    try:
        with times.of("pool: first start, loads torch"):
            pool.run(program)
        pool.close()
        for number in range(repeats):
            print(f"round {number + 1} of {repeats}", file=sys.stderr)
            _starts(times, pool, program, pytorch)
            _warm(times, pool, program, warm, pytorch)
            _failures(times, pool)
            pool.close()
    finally:
        pool.close()
    return times


def _starts(times: Times, pool: Any, program: Any, pytorch: PyTorch | None) -> None:
    """One after the other: an isolated test of each, then ranks that stay for the warm tests."""
    with times.of("pool: isolated test"):
        pool.run(program)
        pool.close()
    if pytorch:
        times.add("PyTorch: isolated test", pytorch.seconds("isolated"))
        pytorch.seconds("restart")
        times.add("PyTorch: start and first test", pytorch.seconds("continuous"))
    started = time.perf_counter()
    pool.start()
    times.add("pool: start of ranks", time.perf_counter() - started)
    pool.run(program)
    times.add("pool: start and first test", time.perf_counter() - started)


def _warm(times: Times, pool: Any, program: Any, count: int, pytorch: PyTorch | None) -> None:
    """Medians of a round; single calls are interleaved."""
    found = Times()
    for _ in range(count):
        with found.of("pool: warm test"):
            run = pool.run(program)
        found.add("pool: overhead of a warm test", found.samples["pool: warm test"][-1] - max(run.results))
        if pytorch:
            found.add("PyTorch: warm test", pytorch.seconds("continuous"))
    for _ in range(max(3, count // 5)):
        pool.run(program, ledger=False)  # nobody vouches for this group, so the next run makes a new one
        with found.of("pool: warm test, group made anew"):
            pool.run(program)
    for name, samples in found.samples.items():
        times.add(name, statistics.median(samples))


def _failures(times: Times, pool: Any) -> None:
    """From the start of a run to the error that names the rank; what comes after the deadline when all ranks hang."""
    from rank_body import dies, hangs

    from parproof.ranks.failure import RankFailure

    pool.start()
    with times.of("pool: a death is told"), contextlib.suppress(RankFailure):
        pool.run(dies)
    pool.start()
    started = time.perf_counter()
    with contextlib.suppress(RankFailure):
        pool.run(hangs, deadline_s=DEADLINE_S)
    times.add("pool: stacks after the deadline", time.perf_counter() - started - DEADLINE_S)


def summary(times: Times) -> dict[str, Any]:
    """Medians, spreads, ratios and whether the goals were met, as plain data."""
    pairs = {
        "isolated test": ("PyTorch: isolated test", "pool: isolated test"),
        "start": ("PyTorch: start and first test", "pool: start and first test"),
        "warm test": ("PyTorch: warm test", "pool: warm test"),
    }
    ratios = {
        name: _ratio(times.ratios(*pair), *GOALS[name])
        for name, pair in pairs.items()
        if pair[0] in times.samples
    }
    return {
        "samples_s": times.samples,
        "median_s": {name: statistics.median(samples) for name, samples in times.samples.items()},
        "ratios": ratios,
        "limits": {
            name: {"limit_s": limit, "met": statistics.median(times.samples[name]) <= limit}
            for name, limit in LIMITS_S.items()
        },
    }


def _ratio(samples: list[float], goal: float, meaning: str) -> dict[str, Any]:
    median = statistics.median(samples)
    spread = {"min": min(samples), "max": max(samples)}
    return {"median": median, **spread, "goal": goal, "met": median >= goal, "meaning": meaning}


def table(found: dict[str, Any]) -> str:
    """The summary for people."""
    lines = [f"{'':36} {'median':>10} {'min':>10} {'max':>10}   ms"]
    for name, samples in sorted(found["samples_s"].items()):
        figures = [statistics.median(samples), min(samples), max(samples)]
        lines.append(f"{name:36} " + " ".join(f"{1000 * x:10.1f}" for x in figures))
    lines.append("")
    for name, limit in found["limits"].items():
        lines.append(
            f"{name:36} at most {1000 * limit['limit_s']:.0f} ms: {'met' if limit['met'] else 'NOT met'}"
        )
    for name, ratio in found["ratios"].items():
        verdict = "met" if ratio["met"] else "NOT met"
        spread = f"{ratio['median']:.1f} x ({ratio['min']:.1f} to {ratio['max']:.1f})"
        lines.append(f"{name:36} {spread}, goal {ratio['goal']:.0f} x: {verdict}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 when a goal was not met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--world", type=int, default=2, help="ranks (default 2)")
    parser.add_argument("--repeats", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--warm", type=int, default=40, help="warm tests in a round (default 40)")
    parser.add_argument("--json", type=Path, help="write samples, medians, ratios and goals to this file")
    parser.add_argument(
        "--no-pytorch", action="store_true", help="measure the pool alone: seconds, not minutes"
    )
    given = parser.parse_args(arguments)
    pytorch = None if given.no_pytorch else PyTorch(given.world)
    try:
        times = measure(
            given.world, given.repeats, given.warm, pytorch if pytorch and pytorch.has_it else None
        )
    finally:
        if pytorch:
            pytorch.close()
    found = summary(times)
    found |= {"world_size": given.world, "repeats": given.repeats, "warm": given.warm}
    print(table(found))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    verdicts = [*found["limits"].values(), *found["ratios"].values()]
    return 0 if all(verdict["met"] for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
