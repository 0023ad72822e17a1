"""What is exported keeps the published contract and our stricter schema, and says no more than the records."""

import json
import platform
import shutil
from pathlib import Path

import pytest

from parproof.cli import main
from parproof.evidence.canonical import file_digest
from parproof.evidence.exchange import exporting
from parproof.evidence.record import Outcome, build
from parproof.evidence.schemas import violations
from parproof.evidence.store import EvidenceStore

pytestmark = pytest.mark.selfcheck
GOOD = Path(__file__).parents[2] / "fixtures" / "evidence" / "good"
BAD = GOOD.parent / "bad"
PROJECT = "PAR-DISTRIBUTED-INFERENCE"
CITING = {f"{name}.json" for name in ("PAR-MODEL-INTERNAL", "PAR-MOE-EXPERT", "PAR-TRAINING-STATE")}


def published_errors(record):
    """The rules of the published validator, written again from their description."""
    needed = "schema_version project role workload hardware metrics evidence_level failure decision"
    roles = "training_state_parallel model_internal_parallel moe_expert_parallel distributed_serving"
    wrong = [f"{name} is missing" for name in needed.split() if name not in record]
    if record.get("schema_version") != "distributed-benchmark/v1":
        wrong.append("schema_version")
    if record.get("role") not in roles.split():
        wrong.append("role")
    for name in ("workload", "hardware", "metrics", "decision"):
        if not isinstance(record.get(name), dict):
            wrong.append(f"{name} is no mapping")
    if not (record.get("failure") is None or isinstance(record["failure"], dict)):
        wrong.append("failure")
    return wrong


def places(value, path=()):
    """Every place that holds null."""
    if value is None:
        yield ".".join(path)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from places(item, (*path, name))


def ranks(device, backend):
    """Two ranks that reported."""
    seats = [
        {
            "rank": r,
            "local_rank": r,
            "pid": 9 + r,
            "host": "host0",
            "hostname": platform.node(),
            "device": f"{device}{r}",
        }
        for r in range(2)
    ]
    facts = {"launcher": "local", "backend": backend, "world_size": 2, "ranks": seats, "host_kind": "real"}
    return facts | {
        "num_reports": 2,
        "calls_seen": 4 * (backend == "gloo"),
        "ledger": True,
        "ledger_complete": None,
    }


@pytest.fixture
def project_evidence(tmp_path):
    """A project that ran on GPUs: as a benchmark, as smoke, failed, and skipped."""
    about = {
        "experiment": PROJECT,
        "lane": "cuda2",
        "workload_id": "chat",
        "workload": {"strategy": "replicas"},
    }
    times = [{"name": "request", "samples_s": [[0.1, 0.2], [0.2, 0.1]], "warmup": 1}]
    run = {"runs": [(ranks("cuda:", "nccl"), [(), ()])]}
    outcomes = [
        Outcome("t.py::a", "ok", 1.0, times=times, model="m", measurements={"ttft_ms": 41.5}, **run, **about),
        Outcome("t.py::b", "ok", 1.0, model="m", **run, **about),
        Outcome(
            "t.py::c",
            "failed",
            1.0,
            failure={"type": "E", "message": "wrong", "phase": "call", "rank": 1},
            **run,
            **about,
        ),
        Outcome(
            "t.py::d",
            "skipped",
            0.0,
            skip={"reason": "no", "requirement": "", "found": "", "how": ""},
            **about,
        ),
    ]
    store = EvidenceStore(tmp_path / "evidence", root=tmp_path, command=["pytest"], label="night")
    store.open()
    for outcome in outcomes:
        store.add(build(outcome))
    names = [outcome.nodeid for outcome in outcomes]
    store.seal(collected=names, collection_errors=[], num_deselected=0, exit_status=1, complete=True)
    return tmp_path / "evidence"


def exported(evidence, tmp_path, *more):
    """The documents as written, by file name."""
    output = tmp_path / "out"
    command = [
        "export",
        str(evidence),
        "--format",
        "distributed-benchmark/v1",
        "--output",
        str(output),
        *more,
    ]
    assert main(command) == 0
    return {path.name: json.loads(path.read_text()) for path in output.iterdir()}


@pytest.mark.parametrize("which", ["mechanisms", "project"])
def test_every_document_keeps_the_published_contract_and_our_own(which, project_evidence, tmp_path):
    """Both validators, the six keys of the pages, and a reason for every null."""
    made = exported(GOOD if which == "mechanisms" else project_evidence, tmp_path)
    assert made
    for document in made.values():
        assert published_errors(document) == []
        assert list(violations("distributed-benchmark", document)) == []
        assert {
            "workload",
            "hardware",
            "metrics",
            "evidence_level",
            "failure",
            "decision",
            "strategy",
        } <= set(document)
        found = set(places(document)) - {"failure"}
        assert {p for p in found if not p.startswith("metrics.measurements")} <= set(
            document["artifacts"]["not_collected"]
        )
        assert document["decision"]["decision"] == "not_evaluated"


def test_a_mechanism_is_cited_and_never_becomes_a_projects_result(tmp_path):
    """No figure, no level above theoretical, and a failure, so that nobody who follows the contract compares it."""
    made = exported(GOOD, tmp_path)
    assert set(made) == CITING
    for name, document in made.items():
        assert name == f"{document['project']}.json"
        assert (document["evidence_level"], document["failure"]["kind"]) == ("theoretical", "not_run")
        (cited,) = [cite for cite in document["metrics"]["cites"] if sum(cite["num_records"].values())]
        assert cited["producer"] == "PAR-NCCL-COLLECTIVE"
        assert cited["num_records"] == {"ok": 3, "failed": 1, "blocked": 0, "skipped": 1}
        assert cited["evidence_levels"] == {"cpu_simulation": 4}
        assert cited["claims"]["C1"] == "failed by some"
        assert cited["claims"]["C2"] == "not shown"
        assert not cited["answers_a_risk"]
        figures = (
            document["metrics"]["time"] | document["metrics"]["load"] | document["metrics"]["communication"]
        )
        assert set(figures.values()) == {None}


def test_a_project_that_ran_gives_one_document_for_each_record(project_evidence, tmp_path):
    """Nothing is added up, so smoke stays smoke beside a benchmark; a failed run has no times; a skip is listed."""
    made = exported(project_evidence, tmp_path)
    assert set(made) == {f"{PROJECT}.{number:06d}.json" for number in range(3)}
    documents = [made[name] for name in sorted(made)]
    assert [d["evidence_level"] for d in documents] == ["real_benchmark", "gpu_smoke", "gpu_smoke"]
    assert [(d["failure"] or {}).get("kind") for d in documents] == [None, None, "failed"]
    assert documents[0]["metrics"]["time"]["measured"][0]["median_s"] == 0.2
    assert (documents[0]["metrics"]["ttft_ms"], documents[0]["metrics"]["e2e_ms"]) == (41.5, None)
    assert (documents[0]["strategy"], documents[0]["backend"]) == ("replicas", "nccl")
    for document in documents:
        assert [left["nodeid"] for left in document["artifacts"]["not_exported"]] == ["t.py::d"]


def test_a_level_is_rounded_down_to_the_five(tmp_path):
    """Processes over gloo are above a simulation, and the contract has no word between."""
    outcome = Outcome(
        "t.py::a", "ok", 1.0, experiment=PROJECT, lane="cpu", runs=[(ranks("cpu", "gloo"), [(), ()])]
    )
    record = build(outcome) | {"sequence": 0, "previous": "0" * 64}
    assert record["conclusion"]["evidence_level"] == "cpu_process_group"
    manifest = json.loads((GOOD / "manifest.json").read_text())
    (document,) = exporting.assemble(manifest, [record], [PROJECT]).documents.values()
    assert document["evidence_level"] == "cpu_simulation"


def test_what_is_not_right_has_no_speed():
    """Also should a record hold times: they are not handed on."""
    times = [{"name": "step", "samples_s": [[0.1, 0.2]] * 2, "warmup": 1}]
    about = {"experiment": PROJECT, "runs": [(ranks("cuda:", "nccl"), [(), ()])], "times": times}
    manifest = json.loads((GOOD / "manifest.json").read_text())
    for status, kept in (("ok", True), ("failed", False), ("blocked", False)):
        outcome = Outcome("t.py::a", status, 1.0, measurements={"ttft_ms": 4.0}, **about)
        record = build(outcome) | {"sequence": 0, "previous": "0" * 64}
        (document,) = exporting.assemble(manifest, [record], [PROJECT]).documents.values()
        assert (document["metrics"]["time"]["measured"] is not None) == kept
        assert (document["metrics"]["ttft_ms"] is not None) == kept


def test_sources_bind_the_files_they_name(tmp_path):
    """Path inside the evidence, size, sha256; and the digest that pytest printed."""
    for document in exported(GOOD, tmp_path).values():
        assert {s["path"] for s in document["sources"]} == {
            "manifest.json",
            "records.jsonl",
            "environment.json",
        }
        for source in document["sources"]:
            assert source["sha256"] == file_digest(GOOD / source["path"])
            assert source["bytes"] == (GOOD / source["path"]).stat().st_size
        assert (
            document["artifacts"]["evidence"]["digest"]
            == json.loads((GOOD / "manifest.json").read_text())["digest"]
        )


def test_the_same_evidence_gives_the_same_bytes(tmp_path):
    """Wherever it lies."""
    moved = Path(shutil.copytree(GOOD, tmp_path / "elsewhere"))
    exporting.export(GOOD, tmp_path / "one")
    exporting.export(moved, tmp_path / "two")
    for name in CITING:
        text = (tmp_path / "one" / name).read_text()
        assert text == (tmp_path / "two" / name).read_text()
        assert text == json.dumps(json.loads(text), sort_keys=True, indent=2, ensure_ascii=False) + "\n"
