"""How the audit grows: N records, and a tenth of them, each in a process of its own on one core.

    python benchmarks/audit_scale.py [--records 100000]

Prints seconds, records a second and peak memory, and the ratios between the two sizes: linear means about ten for
time, and memory that grows by little more than the list of test names. Ends with 1 when a limit is broken.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

TIME_LIMIT_S, MEMORY_LIMIT_MB = 60.0, 500.0
CHILD = """
import resource, sys
from parproof.cli import main
status = main(["audit", sys.argv[1]])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
sys.exit(status)
"""


def make(path: Path, num_records: int) -> None:
    """A sealed directory in which good records repeat under names of their own."""
    from make_evidence_fixtures import Directory

    directory = Directory()
    good = directory.records
    directory.records = []
    for number in range(num_records):
        record = copy.deepcopy(good[number % len(good)])
        record["identity"]["nodeid"] = f"{record['identity']['nodeid'].split('[')[0]}[{number}]"
        for entry in record["time"]["measured"] or ():
            # Samples of its own, or it would be one timing under many names.
            last_s = 0.001 + number * 1e-9
            entry["samples_s"] = [[last_s, *samples_s[1:]] for samples_s in entry["samples_s"]]
            slowest = sorted(max(samples_s) for samples_s in zip(*entry["samples_s"], strict=True))
            entry |= {"median_s": statistics.median(slowest), "p95_s": slowest[-1]}
        directory.records.append(record)
    directory.manifest["collected"] = [r["identity"]["nodeid"] for r in directory.records]
    directory.write(path)


def audited(path: Path) -> tuple[float, float]:
    """(seconds of processor time, peak MB) of one audit, which must find nothing."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(
            f"the audit of {path} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}"
        )
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, float(done.stdout.split()[-1])


def main() -> int:
    """Make both directories, audit both, compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=100_000)
    num_records = parser.parse_args().records
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for size in (num_records // 10, num_records):
            path, started = Path(folder) / str(size), time.monotonic()
            # In a process of its own: a child's peak memory begins with that of the process it was forked from.
            writer = multiprocessing.get_context("spawn").Process(target=make, args=(path, size))
            writer.start()
            writer.join()
            print(f"{size} records written in {time.monotonic() - started:.1f} s", flush=True)
            seconds, megabytes = audited(path)
            found.append((seconds, megabytes))
            print(
                f"{size} records: {seconds:.1f} s, {size / seconds:.0f}/s, peak {megabytes:.0f} MB",
                flush=True,
            )
    (small_s, small_mb), (large_s, large_mb) = found
    print(f"time x{large_s / small_s:.1f}, memory x{large_mb / small_mb:.1f} for ten times the records")
    kept = large_s <= TIME_LIMIT_S and large_mb <= MEMORY_LIMIT_MB
    print(f"limits of {TIME_LIMIT_S:.0f} s and {MEMORY_LIMIT_MB:.0f} MB: {'kept' if kept else 'BROKEN'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
