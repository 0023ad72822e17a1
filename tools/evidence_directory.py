"""Evidence in memory, as an honest run would have left it: outcomes by name, and the directory they are written to."""

from __future__ import annotations

import copy
import datetime
import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from parproof.evidence import canonical, traces
from parproof.evidence.record import Outcome, build
from parproof.ledger.rows import Row

RUN_ID, COMMIT, MACHINE = "5eed" * 8, "c0ffee00" * 5, "node-a"
STARTED = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
STEP = datetime.timedelta(seconds=0.15)  # from test to test; the longest takes 0.1 s
MODULE = "tests/mechanisms/test_nccl_collective.py"
MODEL = "Qwen2.5-0.5B, revision 060db64"
TRACE = json.dumps(
    {"traceEvents": [{"ph": "X", "name": "all_reduce", "ts": 10.0, "dur": 4.5, "pid": 0, "tid": 7}]}
)
TRACE_DIGEST = hashlib.sha256(TRACE.encode()).hexdigest()
SAMPLES_S = [[0.0011, 0.0012, 0.0014, 0.0010], [0.0013, 0.0011, 0.0012, 0.0015]]


def at(moment: datetime.datetime) -> str:
    """As the store writes times."""
    return moment.isoformat(timespec="microseconds")


def observation(world_size: int, *, gpus: bool = False, hosts: Iterable[str] = ()) -> dict[str, Any]:
    """A run of real ranks: gloo on CPU or NCCL on GPUs, of one host or of one host for each rank."""
    named = list(hosts) or [MACHINE] * world_size
    ranks = [
        {
            "rank": r,
            "local_rank": r if len(set(named)) == 1 else 0,
            "pid": 4000 + r,
            "host": f"host{sorted(set(named)).index(named[r])}",
            "hostname": named[r],
            "device": f"cuda:{r if len(set(named)) == 1 else 0}" if gpus else "cpu",
        }
        for r in range(world_size)
    ]
    return {
        "launcher": "local" if len(set(named)) == 1 else "torchrun",
        "backend": "nccl" if gpus else "gloo",
        "world_size": world_size,
        "ranks": ranks,
        "host_kind": "real",
        "num_reports": world_size,
        "calls_seen": world_size,
        "ledger": True,
        "ledger_complete": None if gpus else True,
    }


def row(op: str, world_size: int = 2, peer: int | None = None) -> Row:
    """One call on 64 float32."""
    reduced = "sum" if op == "all_reduce" else ""
    members = tuple(range(world_size))
    return Row(0, op, "single", "0", members, "float32", ((64,),), 256, 256, reduced, peer)


def all_reduce_row(world_size: int) -> Row:
    """One all_reduce of 64 float32."""
    return row("all_reduce", world_size)


def _timed(factor: float = 1.0) -> list[dict[str, Any]]:
    samples = [[round(sample * factor, 7) for sample in rank] for rank in SAMPLES_S]
    return [{"name": "all_reduce", "samples_s": samples, "warmup": 2}]


_ABOUT: dict[str, Any] = {
    "experiment": "PAR-NCCL-COLLECTIVE",
    "lane": "cpu",
    "workload_id": "rank_coded_integers",
    "subject": {"name": "torch_native", "address": "parproof.subjects.torch_native:SUBJECT"},
}
_NO_LANE: dict[str, Any] = _ABOUT | {"lane": None}
_GPU: dict[str, Any] = _ABOUT | {"lane": "cuda2"}


def outcomes() -> dict[str, Outcome]:
    """By name, in the order in which a run of all of them would go."""
    return _small() | _wide()


SMALL = ("value", "ledger", "timing", "defect", "skip", "plain")
WIDE = ("benchmark", "smoke", "trace", "hosts", "emulated", "project", "decision", "moe", "ring", "failure")


def good_outcomes() -> list[Outcome]:
    """A value claim, a ledger claim, a timing, a known defect, a skip, and a test without ranks."""
    return list(_small().values())


def _small() -> dict[str, Outcome]:
    run = (observation(2), [[row("all_reduce")]] * 2)
    line = {"op": "all_reduce", "calls": 1, "in_bytes": 256, "out_bytes": 256, "group_size": 2, "phase": ""}
    predicted = {"rank": 0, "within": [], "lines": [line | {"members": [], "dtype": ""}]}
    defect = {"type": "AssertionError", "message": "rank 1 of 2: 3 of 6 elements differ", "phase": "call"}
    need = {"requirement": "2 CUDA GPUs", "found": "0", "how": "run it on a machine with 2 or more GPUs"}
    reason = {"reason": "lane cuda2 requires 2 CUDA GPUs; found 0; run it on a machine with more"}
    nothing = {"subject": None, "workload_id": None}
    known = {"failure": defect | {"rank": 1}, "expected_nonconformance": "pytorch#192920"}
    c1 = {"claims": ("C1",)}
    strided, on_cuda = f"{MODULE}::test_c1[native-strided]", f"{MODULE}::test_c1[cuda]"
    return {
        "value": Outcome(f"{MODULE}::test_c1[native]", "ok", 0.02, runs=[run], **c1, **_ABOUT),
        "ledger": Outcome(
            f"{MODULE}::test_c7[native]",
            "ok",
            0.02,
            claims=("C7",),
            runs=[run],
            predicted=predicted,
            **_ABOUT,
        ),
        "timing": Outcome(
            f"{MODULE}::test_times[native]", "ok", 0.1, runs=[run], times=_timed(), **c1, **_ABOUT
        ),
        "defect": Outcome(strided, "failed", 0.02, runs=[run], **known, **c1, **_ABOUT),
        "skip": Outcome(on_cuda, "skipped", 0.0, skip=reason | need, **c1, **(_GPU | nothing)),
        "plain": Outcome("tests/selfcheck/test_cost.py::test_ring", "ok", 0.001),
    }


def _wide() -> dict[str, Outcome]:
    gpus = (observation(2, gpus=True), [[row("all_reduce")]] * 2)
    apart = (observation(2, gpus=True, hosts=("node-a", "node-b")), [[row("all_reduce")]] * 2)
    told = observation(2, hosts=("host0", "host1")) | {"host_kind": "emulated", "launcher": "local"}
    around = (
        observation(2) | {"calls_seen": 4},
        [[row("send", 2, 1 - r), row("recv", 2, 1 - r)] for r in (0, 1)],
    )
    stopped = observation(2) | {"problems": {"1": "died"}}
    exposed = {"time": {"communication_s": 0.004, "exposed_s": 0.001}}
    dropped = {"load": {"per_rank": [6, 2], "max_over_mean": 1.5, "overflow": 3}}
    c1, cross = {"claims": ("C1",)}, _ABOUT | {"lane": "cross_node"}
    moe = _NO_LANE | {"experiment": "PAR-EXPERT-DISPATCH", "workload_id": "skewed_routes"}
    ring = _NO_LANE | {"experiment": "PAR-CONTEXT-RING", "workload_id": "attention_integers"}
    project = _GPU | {"experiment": "PAR-TRAINING-STATE", "workload_id": "packed_2048"}
    page = {"experiment": "PAR-STRATEGY-DECISION", "claims": ("C1",), "lane": "cpu"}
    benched = {"runs": [gpus], "times": _timed(0.5), "model": MODEL}
    traced = {"runs": [gpus], "times": _timed(0.25), "model": MODEL, "traces": [TRACE_DIGEST]}
    own = {"runs": [gpus], "times": _timed(2.0), "model": MODEL, "workload": {"strategy": "zero2"}}
    rate = {"measurements": {"effective_tokens_per_step": 5}, "figures": dropped}
    faster = {"measurements": {"speedup": 1.7, "tokens_per_s": 5100.0}}
    return {
        "benchmark": Outcome("test_g.py::test_benchmark", "ok", 0.1, **benched, **faster, **c1, **_GPU),
        "smoke": Outcome("test_g.py::test_smoke", "ok", 0.1, runs=[gpus], **c1, **_GPU),
        "trace": Outcome("test_g.py::test_trace", "ok", 0.1, figures=exposed, **traced, **c1, **_GPU),
        "hosts": Outcome("test_h.py::test_apart", "ok", 0.1, runs=[apart], **c1, **cross),
        "emulated": Outcome(
            "test_h.py::test_told_apart",
            "ok",
            0.1,
            runs=[(told, [[row("all_reduce")]] * 2)],
            **c1,
            **_NO_LANE,
        ),
        "project": Outcome("tests/projects/test_p.py::test_zero2", "ok", 0.1, **own, **project),
        "decision": Outcome("test_d.py::test_page", "ok", 0.01, **page),
        "moe": Outcome(
            "test_e.py::test_skewed",
            "ok",
            0.02,
            runs=[(observation(2), [[row("all_to_all")]] * 2)],
            **rate,
            **c1,
            **moe,
        ),
        "ring": Outcome(
            "test_r.py::test_ring", "ok", 0.02, runs=[around], workload={"variant": "ring"}, **c1, **ring
        ),
        "failure": Outcome("test_f.py::test_dies", "ok", 0.02, failed_runs=[stopped], **_ABOUT),
    }


class Directory:
    """An evidence directory: records without their places, manifest, environment, further files.

    names     outcomes it holds; without any, the six of the small run
    machine, commit, label, run_id, after_s   what tells this run from another
    """

    def __init__(
        self,
        names: Iterable[str] = SMALL,
        *,
        machine: str = MACHINE,
        commit: str = COMMIT,
        run_id: str = RUN_ID,
        after_s: float = 0.0,
    ) -> None:
        known = outcomes()
        self.records = [build(known[name]) for name in names]
        self.started = STARTED + datetime.timedelta(seconds=after_s)
        self.manifest: dict[str, Any] = {
            "schema": "parproof-manifest/v1",
            "run_id": run_id,
            "run_label": "fixture",
            "started": at(self.started),
            "complete": True,
            "exit_status": 0,
            "command": ["pytest", "-m", "cpu", "--evidence", "evidence"],
            "collected": [record["identity"]["nodeid"] for record in self.records],
            "collection_errors": [],
            "num_deselected": 0,
            "source": {"commit": commit, "dirty": False, "fingerprint": canonical.digest(commit)},
        }
        hardware = {"system": "Linux", "kernel": "6.1", "architecture": "x86_64", "cpu_model": None}
        size = {"num_cpus": 2, "memory_bytes": 1 << 34}
        self.environment: dict[str, Any] = {
            "schema": "parproof-environment/v1",
            "machine": {"hostname": machine} | hardware | size,
            "python": {"version": "3.11.7", "implementation": "CPython"},
            "packages": {"parproof": "0.1.0", "torch": "2.13.0+cpu", "pytest": "9.2.0"},
            "variables": {},
        }
        self.artefacts: dict[str, str] = {}
        if any(TRACE_DIGEST in (r["observation"] or {"traces": ()})["traces"] for r in self.records):
            self.artefacts[traces.name_of(TRACE_DIGEST)] = TRACE
        if machine != MACHINE:
            moved(self.records, machine)
        self.after_sealing: list[Callable[[Path], None]] = []
        self.resealed: dict[str, Any] = {}

    def end(self, place: int) -> dict[str, Any]:
        """The conclusion of a record."""
        conclusion: dict[str, Any] = self.records[place]["conclusion"]
        return conclusion

    def placed(self) -> list[dict[str, Any]]:
        """Records with run id, number, time, provenance and the digest of the one before; what is there stays."""
        previous, placed, began = canonical.GENESIS, [], self.started
        digest = hashlib.sha256(self._environment_text().encode()).hexdigest()
        for number, given in enumerate(self.records):
            record = {"run_id": self.manifest["run_id"], "sequence": number, "previous": previous} | given
            record["identity"] = {"run_label": self.manifest["run_label"]} | given["identity"]
            took = datetime.timedelta(seconds=given["time"]["test_s"], milliseconds=1)
            for name, moment in (("started", began), ("ended", began + took)):
                if record["time"][name] is None:
                    record["time"] = record["time"] | {name: at(moment)}
                    reasons = record["not_collected"]
                    record["not_collected"] = {k: v for k, v in reasons.items() if k != f"time.{name}"}
            began += STEP
            made_from = {"source": self.manifest["source"]["fingerprint"], "environment": digest}
            record["provenance"] = made_from | {"written": at(began)} | given["provenance"]
            placed.append(record)
            previous = canonical.digest(record)
        self.manifest |= {"num_records": len(placed), "last_record": previous}
        self.manifest.setdefault("ended", at(began))
        return placed

    def _environment_text(self) -> str:
        return canonical.dumps(self.environment) + "\n"

    def write(self, path: Path) -> None:
        """Seal and write, then do what the lie does to the sealed files."""
        path.mkdir(parents=True)
        lines = [canonical.dumps(record) for record in self.placed()]
        texts = {"records.jsonl": "".join(line + "\n" for line in lines)}
        texts |= {"environment.json": self._environment_text()} | self.artefacts
        for name, text in texts.items():
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_text(text)
        worst_first = ("failed", "blocked", "skipped", "ok")
        by_test: dict[str, list[str]] = {}
        for record in self.records:
            by_test.setdefault(record["identity"]["nodeid"], []).append(record["conclusion"]["status"])
        counts = [min(statuses, key=worst_first.index) for statuses in by_test.values()]
        self.manifest["counts"] = {s: counts.count(s) for s in ("ok", "failed", "blocked", "skipped")}
        self.manifest["files"] = {name: {} for name in texts}
        self.manifest |= self.resealed
        self.seal_again(path)
        for change in self.after_sealing:
            change(path)

    def seal_again(self, path: Path) -> None:
        """Make sizes, digests and the manifest's own digest fit what is there."""
        self.manifest["files"] = {
            name: {"sha256": canonical.file_digest(path / name), "bytes": (path / name).stat().st_size}
            for name in self.manifest["files"]
        }
        rest = {name: value for name, value in self.manifest.items() if name != "digest"}
        self.manifest["digest"] = canonical.digest(rest)
        (path / "manifest.json").write_text(canonical.dumps(self.manifest) + "\n")


def moved(records: list[dict[str, Any]], machine: str) -> None:
    """The same ranks on another machine."""
    for record in records:
        seen = record["observation"] or {"runs": (), "failed_runs": ()}
        placed = [run["ranks"] for run in (*seen["runs"], *seen["failed_runs"])]
        for ranks in (*placed, record["topology"]["ranks"] or ()):
            for rank in ranks:
                rank["hostname"] = machine if rank["hostname"] == MACHINE else rank["hostname"]


def other_runs() -> dict[str, Directory]:
    """Good evidence too: more kinds of records, and the small run once more, later, of another commit, elsewhere."""
    return {
        "wide": Directory(WIDE),
        "another-run": Directory(run_id="0dd5" * 8, after_s=3600),
        "another-commit": Directory(run_id="c0de" * 8, after_s=7200, commit="0ddba11a" * 5),
        "another-machine": Directory(run_id="b0b0" * 8, after_s=9000, machine="node-z"),
    }


def taken_from(other: Directory, place: int) -> dict[str, Any]:
    """A record of another run as an editor pastes it: all it holds, but for its place in the chain."""
    record = copy.deepcopy(other.placed()[place])
    return {name: value for name, value in record.items() if name not in ("run_id", "sequence", "previous")}
