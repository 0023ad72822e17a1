"""Other people's distributed-benchmark/v1: what it claims, what it supports; and ours, there and back."""

import copy
import json
import platform
from pathlib import Path

import pytest

from parproof.cli import main
from parproof.evidence.exchange import exporting
from parproof.evidence.exchange.importing import import_files
from parproof.evidence.record import Outcome, build
from parproof.evidence.store import EvidenceStore

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
GOOD = ROOT / "fixtures" / "evidence" / "good"
SMOKE = ROOT / "fixtures" / "exchange" / "v1" / "smoke.json"
ABSENT = object()


def changed(document, *changes):
    """A copy with other values, or none, at dotted places."""
    copied = copy.deepcopy(document)
    for place, value in changes:
        *holders, name = place.split(".")
        at = copied
        for holder in holders:
            at = at[int(holder) if isinstance(at, list) else holder]
        if value is ABSENT:
            del at[name]
        else:
            at[int(name) if isinstance(at, list) else name] = value
    return copied


def assess(tmp_path, document, **options):
    """The one assessment of a document."""
    path = tmp_path / "foreign.json"
    path.write_text(json.dumps(document))
    (imported,) = import_files([path], **options)
    return imported.assessment


def test_a_modest_record_is_supported_as_claimed(tmp_path, capsys):
    """Smoke that says smoke: no finding, and the limits are told all the same."""
    assert main(["import", str(SMOKE)]) == 0
    told = assess(tmp_path, json.loads(SMOKE.read_text()))
    assert (told.findings, told.at_most()[0]) == ([], "gpu_smoke")
    assert {limit.id for limit in told.limits} == {"one-host", "no-sealed-observation", "sources-not-read"}
    given = told.plain_groups()
    assert given["hardware"]["rank_to_device"] == {"0": "cuda:0", "1": "cuda:1"}
    assert (given["hardware"]["scope"], given["load"]["per_rank"]) == ("single_host", [31.0, 30.5])
    assert {"hardware.links", "time.p95_s", "conclusion.fallback"} <= set(told.missing())
    assert "supports at most gpu_smoke" in capsys.readouterr().out


FAILED = ("failure", {"reason": "out of memory"})
CLAIMS = [
    ("schema-version", ("schema_version", ABSENT)),
    ("field-missing", ("hardware", ABSENT)),
    ("role-unknown", ("role", "gpu_smoke")),
    ("role-of-project", ("role", "moe_expert_parallel")),
    ("hardware-is-text", ("hardware", "8 GPUs")),
    ("decision-is-text", ("decision", "pending")),
    ("not-a-mapping", ("metrics", [1])),
    ("failure-form", ("failure", "it broke")),
    ("empty-mapping", ("workload", {})),
    ("decision-unknown", ("decision", {"decision": "looks_good"})),
    ("level-not-canonical", ("evidence_level", "production")),
    ("level-not-canonical", ("evidence_level", None)),
    ("level-before-run", ("metrics", {})),
    ("level-before-run", ("hardware.ranks", []), ("hardware.gpu", "cpu")),
    ("level-above-support", ("evidence_level", "real_benchmark")),
    ("level-above-support", ("evidence_level", "profiler_trace")),
    ("preflight-as-evidence", ("evidence_level", "environment_preflight")),
    ("cross-node-claim", ("hardware.num_nodes", 2)),
    ("cross-node-claim", ("hardware.topology", "multi-node")),
    ("cross-node-claim", ("metrics.cross_node_efficiency", 0.9)),
    ("mechanism-as-project", ("project", "PAR-ZERO-STATE")),
    ("mechanism-as-project", ("workload.mode", "tp_mlp")),
    ("mechanism-as-project", ("workload.model", "synthetic_transformer_mlp")),
    ("single-process", ("evidence_level", "real_benchmark"), ("hardware.world_size", 1)),
    ("orchestration-as-communication", ("metrics", {"placement_group": "created"})),
    ("simulation-as-scaling", ("evidence_level", "cpu_simulation"), ("metrics.scaling_efficiency", 0.97)),
    ("workload-not-fixed", ("evidence_level", "real_benchmark"), ("workload", {"seq_len": 8})),
    ("failure-and-performance", FAILED),
    ("wrong-and-performance", ("metrics.correctness", "fail")),
    ("nothing-measured", ("evidence_level", "cpu_simulation"), ("metrics", {"note": "planned"})),
    ("logical-as-network", ("metrics.network_bytes", 64), ("metrics.dispatch_bytes", 64)),
    ("overflow-hidden", ("metrics.overflow_tokens", 3), ("metrics.throughput_tokens_per_s", 9.0)),
    ("kernel-sum", ("metrics.total_nccl_kernel_ms", 8.0)),
    ("gemm-no-serving", ("project", "81"), ("role", "distributed_serving"), ("workload.backend", "torch")),
    ("decision-needs-comparison", ("decision", {"decision": "accept"})),
    ("source-twice", ("sources", [{"path": "a", "sha256": "0" * 64}] * 2)),
    ("source-undigested", ("sources", [{"path": "a"}])),
    ("not-finite", ("metrics.loss", float("nan"))),
    ("not-positive", ("metrics.step_time_ms_per_rank", [-1.0, 2.0])),
    ("identity-consistent", ("workload.world_size", 8)),
    ("identity-consistent", ("hardware.ranks.1.rank", 0)),
    ("identity-consistent", ("hardware.ranks", ABSENT), ("workload.world_size", 8)),
    ("identity-consistent", ("hardware.ranks", [{"rank": r, "device": "cuda"} for r in (0, 1, 1)])),
    ("identity-consistent", ("hardware.world_size", 4)),
    ("value-derived", ("workload.micro_batch", 1), ("workload.gradient_accumulation", 1)),
    ("ranks-incomplete", ("metrics.step_time_ms_per_rank", [31.0])),
    ("memory-of-one-rank", ("metrics.peak_memory_mb_per_rank", 812.0)),
]


@pytest.mark.parametrize("claim", CLAIMS, ids=[f"{place}-{claim[0]}" for place, claim in enumerate(CLAIMS)])
def test_what_is_claimed_too_much_is_found_by_name(claim, tmp_path):
    """One change of a record that has no finding."""
    reason, *changes = claim
    told = assess(tmp_path, changed(json.loads(SMOKE.read_text()), *changes))
    assert reason in {finding.id for finding in told.findings}
    assert main(["import", str(tmp_path / "foreign.json")]) == 1


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ([("metrics", {})], "theoretical"),
        ([FAILED], "theoretical"),
        ([FAILED, ("metrics", {"state_bytes": 64})], "theoretical"),
        ([("metrics.step_time_ms_per_rank", [31.0])], "theoretical"),
        ([("hardware.ranks", []), ("hardware.gpu", ABSENT)], "cpu_simulation"),
        ([("evidence_level", "profiler_trace"), ("decision", {"decision": "accept"})], "gpu_smoke"),
    ],
    ids=["nothing_measured", "failed", "failed_without_times", "spoilt", "no_accelerator", "words"],
)
def test_what_is_missing_lowers_the_level_and_no_word_raises_it(changes, level, tmp_path):
    """Above smoke there is no way by typing."""
    assert assess(tmp_path, changed(json.loads(SMOKE.read_text()), *changes)).at_most()[0] == level


@pytest.fixture
def on_gpus(tmp_path):
    """A project that ran as a benchmark on two GPUs."""
    seats = [
        {
            "rank": r,
            "local_rank": r,
            "pid": 9 + r,
            "host": "host0",
            "hostname": platform.node(),
            "device": f"cuda:{r}",
        }
        for r in range(2)
    ]
    facts = {"launcher": "local", "backend": "nccl", "world_size": 2, "ranks": seats, "host_kind": "real"}
    facts |= {"num_reports": 2, "calls_seen": 0, "ledger": True, "ledger_complete": None}
    times = [{"name": "step", "samples_s": [[0.1, 0.2], [0.2, 0.1]], "warmup": 1}]
    about = {"experiment": "PAR-MOE-EXPERT", "lane": "cuda2", "workload_id": "w", "model": "m"}
    store = EvidenceStore(tmp_path / "evidence", root=tmp_path, command=["pytest"], label="")
    store.open()
    store.add(build(Outcome("t.py::a", "ok", 1.0, runs=[(facts, [(), ()])], times=times, **about)))
    store.seal(collected=["t.py::a"], collection_errors=[], num_deselected=0, exit_status=0, complete=True)
    return tmp_path / "evidence"


def test_what_we_export_our_import_supports_exactly_as_exported(on_gpus, tmp_path):
    """Citations and results; the level is the exported one, derived again from the evidence."""
    for evidence in (GOOD, on_gpus):
        made = exporting.build(evidence).documents
        output = tmp_path / f"out-{evidence.name}"
        exporting.export(evidence, output)
        found = import_files(sorted(output.iterdir()), evidence=evidence)
        assert len(found) == len(made)
        for imported in found:
            told, document = imported.assessment, made[imported.path.name]
            assert (told.findings, told.attested) == ([], document["evidence_level"])
            assert told.at_most()[0] == told.claims["evidence_level"] == document["evidence_level"]
            assert (told.claims["project"], told.claims["decision"]) == (document["project"], "not_evaluated")


def test_without_the_evidence_a_benchmark_is_a_word(on_gpus, tmp_path, capsys):
    """The same document, once alone, once beside what it was made from."""
    exporting.export(on_gpus, tmp_path / "out")
    document = str(tmp_path / "out" / "PAR-MOE-EXPERT.000000.json")
    assert main(["import", document]) == 1
    assert (
        "level-above-support evidence_level: claimed real_benchmark; supported at most gpu_smoke"
        in capsys.readouterr().out
    )
    assert main(["import", document, "--evidence", str(on_gpus)]) == 0
    assert "supports at most real_benchmark" in capsys.readouterr().out


def test_a_document_that_the_evidence_does_not_give_is_found(on_gpus, tmp_path):
    """Edited after its export, or made from other evidence."""
    (document,) = exporting.build(on_gpus).documents.values()
    edited = changed(document, ("metrics.measurements", {"speedup": 9.0}))
    for other, evidence in ((edited, on_gpus), (document, GOOD)):
        told = assess(tmp_path, other, evidence=evidence)
        assert {"evidence-disagrees", "level-above-support"} == {finding.id for finding in told.findings}
        assert told.attested is None
