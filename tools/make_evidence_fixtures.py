"""Writes fixtures/evidence: one good directory, and for every audit rule one that breaks this rule and no other.

    python tools/make_evidence_fixtures.py          # rewrite them all
    python tools/make_evidence_fixtures.py --check  # fail if what is committed differs

A liar who knows the format re-seals what he has changed, so every lie but those about the seal itself is sealed again.
"""

from __future__ import annotations

import argparse
import copy
import filecmp
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import merge_fixtures
import seal_fixtures

from parproof.evidence import canonical
from parproof.evidence.audit.junit import name_in_junit
from parproof.evidence.record import Outcome, build
from parproof.ledger.rows import Row

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "fixtures" / "evidence"
RUN_ID, COMMIT = "5eed" * 8, "c0ffee00" * 5
MODULE = "tests/mechanisms/test_nccl_collective.py"
FAILURE = {"type": "AssertionError", "message": "rank 1 of 2: differs", "phase": "call", "rank": 1}
Lie = Callable[["Directory"], None]


def observation(world_size: int) -> dict[str, Any]:
    """A run of real gloo ranks on one host."""
    ranks = [
        {"rank": r, "local_rank": r, "pid": 4000 + r, "host": "host0", "hostname": "node-a", "device": "cpu"}
        for r in range(world_size)
    ]
    return {
        "launcher": "local",
        "backend": "gloo",
        "world_size": world_size,
        "ranks": ranks,
        "host_kind": "real",
        "num_reports": world_size,
        "calls_seen": world_size,
        "ledger": True,
        "ledger_complete": True,
    }


def all_reduce_row(world_size: int) -> Row:
    """One all_reduce of 64 float32."""
    return Row(0, "all_reduce", "single", "0", tuple(range(world_size)), "float32", ((64,),), 256, 256, "sum")


def good_outcomes() -> list[Outcome]:
    """A value claim, a ledger claim, a timing, a known defect, a skip, and a test without ranks."""
    run = (observation(2), [[all_reduce_row(2)]] * 2)
    line = {"op": "all_reduce", "calls": 1, "in_bytes": 256, "out_bytes": 256, "group_size": 2, "phase": ""}
    line |= {"members": [], "dtype": ""}
    about = {"experiment": "PAR-NCCL-COLLECTIVE", "lane": "cpu", "workload_id": "rank_coded_integers"}
    native = {"name": "torch_native", "address": "parproof.subjects.torch_native:SUBJECT"}
    samples = [[0.0011, 0.0012, 0.0014, 0.0010], [0.0013, 0.0011, 0.0012, 0.0015]]
    defect = {
        "type": "AssertionError",
        "message": "rank 1 of 2: 3 of 6 elements differ",
        "phase": "call",
        "rank": 1,
    }
    need = {"requirement": "2 CUDA GPUs", "found": "0", "how": "run it on a machine with 2 or more GPUs"}
    return [
        Outcome(
            f"{MODULE}::test_c1[native]", "ok", 0.02, claims=("C1",), subject=native, runs=[run], **about
        ),
        Outcome(
            f"{MODULE}::test_c7[native]",
            "ok",
            0.02,
            claims=("C7",),
            subject=native,
            runs=[run],
            predicted={"rank": 0, "within": [], "lines": [line]},
            **about,
        ),
        Outcome(
            f"{MODULE}::test_times[native]",
            "ok",
            0.1,
            claims=("C1",),
            subject=native,
            runs=[run],
            times=[{"name": "all_reduce", "samples_s": samples, "warmup": 2}],
            **about,
        ),
        Outcome(
            f"{MODULE}::test_c1[native-strided]",
            "failed",
            0.02,
            claims=("C1",),
            subject=native,
            runs=[run],
            failure=defect,
            expected_nonconformance="pytorch#192920",
            **about,
        ),
        Outcome(
            f"{MODULE}::test_c1[cuda]",
            "skipped",
            0.0,
            claims=("C1",),
            skip={"reason": "lane cuda2 requires 2 CUDA GPUs; found 0; run it on a machine with more"} | need,
            **(about | {"lane": "cuda2"}),
        ),
        Outcome("tests/selfcheck/test_cost.py::test_ring", "ok", 0.001),
    ]


class Directory:
    """An evidence directory in memory: records without their places, manifest, environment, further files."""

    def __init__(self) -> None:
        self.run_id = RUN_ID
        self.records = [build(outcome) for outcome in good_outcomes()]
        for record in self.records:
            record["identity"]["run_label"] = "fixture"
        self.manifest: dict[str, Any] = {
            "schema": "parproof-manifest/v1",
            "run_id": RUN_ID,
            "run_label": "fixture",
            "started": "2026-01-02T03:04:05.000000+00:00",
            "ended": "2026-01-02T03:04:06.000000+00:00",
            "complete": True,
            "exit_status": 0,
            "command": ["pytest", "-m", "cpu", "--evidence", "evidence"],
            "collected": [record["identity"]["nodeid"] for record in self.records],
            "collection_errors": [],
            "num_deselected": 0,
            "source": {"commit": COMMIT, "dirty": False, "fingerprint": canonical.digest("fixture")},
        }
        self.environment: dict[str, Any] = {
            "schema": "parproof-environment/v1",
            "machine": {
                "hostname": "node-a",
                "system": "Linux",
                "kernel": "6.1",
                "architecture": "x86_64",
                "cpu_model": None,
                "num_cpus": 2,
                "memory_bytes": 1 << 34,
            },
            "python": {"version": "3.11.7", "implementation": "CPython"},
            "packages": {"parproof": "0.1.0", "torch": "2.13.0+cpu", "pytest": "9.2.0"},
            "variables": {},
        }
        self.after_sealing: list[Callable[[Path], None]] = []
        self.resealed: dict[str, Any] = {}

    def end(self, place: int) -> dict[str, Any]:
        """The conclusion of a record."""
        conclusion: dict[str, Any] = self.records[place]["conclusion"]
        return conclusion

    def placed(self) -> list[dict[str, Any]]:
        """Records with run id, number and the digest of the one before."""
        previous, placed = canonical.GENESIS, []
        for number, record in enumerate(self.records):
            placed.append({"run_id": self.run_id, "sequence": number, "previous": previous} | record)
            previous = canonical.digest(placed[-1])
        self.manifest |= {"num_records": len(placed), "last_record": previous}
        return placed

    def write(self, path: Path) -> None:
        """Seal and write, then do what the lie does to the sealed files."""
        path.mkdir(parents=True)
        lines = [canonical.dumps(record) for record in self.placed()]
        (path / "records.jsonl").write_text("".join(line + "\n" for line in lines))
        (path / "environment.json").write_text(canonical.dumps(self.environment) + "\n")
        worst_first = ("failed", "blocked", "skipped", "ok")
        by_test: dict[str, list[str]] = {}
        for record in self.records:
            by_test.setdefault(record["identity"]["nodeid"], []).append(record["conclusion"]["status"])
        counts = [min(statuses, key=worst_first.index) for statuses in by_test.values()]
        self.manifest["counts"] = {s: counts.count(s) for s in ("ok", "failed", "blocked", "skipped")}
        self.manifest["files"] = {
            name: {"sha256": canonical.file_digest(path / name), "bytes": (path / name).stat().st_size}
            for name in ("records.jsonl", "environment.json")
        }
        self.manifest |= self.resealed
        self.write_manifest(path)
        for change in self.after_sealing:
            change(path)

    def write_manifest(self, path: Path) -> None:
        """With the digest of all the rest."""
        rest = {name: value for name, value in self.manifest.items() if name != "digest"}
        self.manifest["digest"] = canonical.digest(rest)
        (path / "manifest.json").write_text(canonical.dumps(self.manifest) + "\n")


def sealed(change: Callable[[Directory], Any]) -> Lie:
    """A lie told before sealing."""

    def lie(directory: Directory) -> None:
        change(directory)

    return lie


def one_run(directory: Directory) -> None:
    """A record of another run."""
    directory.records[0] = {"run_id": "0" * 32} | directory.records[0] | {"run_id": "0" * 32}


def duplicate(directory: Directory) -> None:
    """A test that passed once is there twice."""
    directory.records.append(copy.deepcopy(directory.records[0]))


def only_skipped(directory: Directory) -> None:
    """The ledger claim was skipped, and still stands for the experiment."""
    skip = {"reason": "not today", "requirement": "", "found": "not today", "how": ""}
    outcome = good_outcomes()[1]
    bare = Outcome(
        outcome.nodeid,
        "skipped",
        0.0,
        outcome.experiment,
        outcome.claims,
        outcome.lane,
        skip=skip,
        subject=outcome.subject,
    )
    directory.records[1] = build(bare)
    directory.records[1]["identity"]["run_label"] = "fixture"


def set_in(place: int, path: str, value: Any) -> Lie:
    """Type a value into a record."""

    def lie(directory: Directory) -> None:
        target: Any = directory.records[place]
        *way, last = path.split("/")
        for step in way:
            target = target[int(step) if isinstance(target, list) else step]
        target[last] = value

    return lie


def append_to_records(path: Path) -> None:
    """One more byte after sealing."""
    with (path / "records.jsonl").open("a") as file:
        file.write("\n")


def swap_two(directory: Directory) -> None:
    """Two records change places after they were chained; the manifest is made to fit."""

    def swap(path: Path) -> None:
        lines = (path / "records.jsonl").read_text().splitlines(keepends=True)
        lines[0], lines[1] = lines[1], lines[0]
        (path / "records.jsonl").write_text("".join(lines))
        entry = directory.manifest["files"]["records.jsonl"]
        entry["sha256"] = canonical.file_digest(path / "records.jsonl")
        directory.write_manifest(path)

    directory.after_sealing.append(swap)


def edit_manifest(path: Path) -> None:
    """A word of the manifest changes after sealing."""
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace('"cpu"', '"all"'))


def more_than_seen(directory: Directory) -> None:
    """The ledger shows half of the predicted bytes."""
    for line in directory.records[1]["communication"]["predicted"]["lines"]:
        line["in_bytes"] = line["out_bytes"] = 512


def incomplete_ledger(directory: Directory) -> None:
    """The group counted calls that the ledger did not see."""
    record = directory.records[1]
    record["communication"]["ledger_complete"] = False
    record["observation"]["runs"][0]["ledger_complete"] = False


def missing_rank(directory: Directory) -> None:
    """One of two ranks did not report; the level is made to fit."""
    record = directory.records[0]
    record["observation"]["runs"][0]["num_reports"] = 1
    record["conclusion"] |= {"evidence_level": "theoretical", "level_reason": "1 of 2 ranks reported"}


def timing_of_a_failure(directory: Directory) -> None:
    """The result was wrong, the time is kept."""
    directory.end(2).update(
        status="failed",
        correctness="fail",
        failure={"type": "AssertionError", "message": "wrong", "phase": "call", "rank": None},
        expected_nonconformance="pytorch#1",
    )
    for name in ("failure", "expected_nonconformance"):
        del directory.records[2]["not_collected"][f"conclusion.{name}"]


def once_without_warmup(directory: Directory) -> None:
    """One sample of each rank, the first."""
    record = directory.records[2]
    entry = record["time"]["measured"][0]
    entry |= {"warmup": 0, "repeats": 1, "samples_s": [[0.2], [0.3]], "median_s": 0.3, "p95_s": 0.3}
    record["observation"] |= {"warmup": 0, "repeats": 1}


def unnamed_flaky(directory: Directory) -> None:
    """A test failed, was run again and passed; both are counted as they should, and nobody names it."""
    failed = directory.records[0]
    again = copy.deepcopy(failed) | {"attempt": 2}
    directory.records.append(again)
    failed["conclusion"] |= {"status": "failed", "correctness": "fail", "failure": copy.deepcopy(FAILURE)}
    del failed["not_collected"]["conclusion.failure"]
    directory.manifest |= {"exit_status": 1}


def cuda_on_cpu(directory: Directory) -> None:
    """A lane is a label; the ranks were on CPU."""
    directory.records[0]["identity"]["lane"] = "cuda2"


LIES: dict[str, Lie] = {
    "chain": swap_two,
    "claims-registered": set_in(0, "identity/tiers", ["timing"]),
    "clock-forward": sealed(lambda d: d.manifest.update(ended="2026-01-02T03:04:04.000000+00:00")),
    "complete": duplicate,
    "counts": sealed(lambda d: d.resealed.update(counts={"ok": 5, "failed": 1, "blocked": 0, "skipped": 0})),
    "decision-needs-comparison": set_in(0, "conclusion/decision", "accept"),
    "flaky-named": unnamed_flaky,
    "files-bound": sealed(
        lambda d: d.after_sealing.append(lambda p: (p / "more.json").write_text("{}\n") and None)
    ),
    "lane-observed": cuda_on_cpu,
    "ledger-complete": incomplete_ledger,
    "ledger-matches-prediction": more_than_seen,
    "level-computed": set_in(0, "conclusion/evidence_level", "real_benchmark"),
    "limits-stated": set_in(0, "conclusion/not_shown", ["other machines"]),
    "manifest-bound": sealed(lambda d: d.after_sealing.append(edit_manifest)),
    "nonconformance-is-a-finding": set_in(0, "conclusion/expected_nonconformance", "pytorch#1"),
    "null-has-reason": set_in(0, "not_collected", {}),
    "observation-consistent": set_in(0, "observation/workload_id", "another"),
    "one-run": one_run,
    "ranks-reported": missing_rank,
    "required-claims": only_skipped,
    "schema": set_in(0, "conclusion/verdict", "fast"),
    "scope-computed": set_in(0, "topology/scope", "multi_host"),
    "status-consistent": set_in(0, "conclusion/correctness", "fail"),
    "timing-after-correctness": timing_of_a_failure,
    "timing-derived": set_in(2, "time/measured/0/median_s", 0.0001),
    "timing-observed": set_in(2, "observation/repeats", 400),
    "timing-repeated": once_without_warmup,
    "topology-observed": set_in(0, "communication/launcher", "torchrun"),
    "trace-kept": set_in(0, "observation/traces", ["7ace" * 16]),
    "wire-modelled": set_in(0, "communication/wire_model/model", "payload, as on NCCL"),
}


def repair(directory: Directory, rule: str) -> None:
    """What a liar also changes so that only his lie remains."""
    first = directory.records[0]
    if rule == "nonconformance-is-a-finding":
        del first["not_collected"]["conclusion.expected_nonconformance"]


def junit(records: list[dict[str, Any]]) -> str:
    """The JUnit file of the good run, as pytest would write it."""
    cases = []
    for record in records:
        end = record["conclusion"]
        classname, _, name = name_in_junit(record["identity"]["nodeid"]).partition("::")
        properties = {"parproof.level": end["evidence_level"] or "none", "parproof.status": end["status"]}
        inner = "".join(
            f"<property name={quoteattr(k)} value={quoteattr(v)} />" for k, v in properties.items()
        )
        cases.append(
            f"<testcase classname={quoteattr(classname)} name={quoteattr(name)}><properties>{inner}</properties></testcase>"
        )
    return "<testsuites><testsuite>\n" + "\n".join(cases) + "\n</testsuite></testsuites>\n"


def write_all(target: Path) -> None:
    """Good, bad, and JUnit."""
    good = Directory()
    good.write(target / "good")
    (target / "junit").mkdir()
    (target / "junit" / "good.xml").write_text(junit(good.records))
    for rule, lie in LIES.items():
        directory = Directory()
        lie(directory)
        repair(directory, rule)
        directory.write(target / "bad" / rule)
    merge_fixtures.write_all(target, Directory)
    seal_fixtures.write_all(target)
    altered = copy.deepcopy(good.records)
    altered[0]["conclusion"]["evidence_level"] = "real_benchmark"
    altered[4]["conclusion"]["status"] = "ok"
    (target / "junit" / "junit-agrees.xml").write_text(junit(altered))


def differences(left: Path, right: Path) -> list[str]:
    """Files that differ or are on one side only."""
    names = {p.relative_to(left) for p in left.rglob("*") if p.is_file()}
    names |= {p.relative_to(right) for p in right.rglob("*") if p.is_file()}
    same = [
        n
        for n in names
        if (left / n).is_file() and (right / n).is_file() and filecmp.cmp(left / n, right / n, False)
    ]
    return sorted(str(n) for n in names - set(same))


def main() -> int:
    """Write, or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "evidence"
        write_all(made)
        if check:
            found = differences(made, FIXTURES)
            print("\n".join(found) or "fixtures are up to date")  # noqa: T201
            return 1 if found else 0
        shutil.rmtree(FIXTURES, ignore_errors=True)
        shutil.copytree(made, FIXTURES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
