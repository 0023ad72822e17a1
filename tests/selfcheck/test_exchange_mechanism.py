"""JSON of mechanism runners: each known fault is found by its name."""

import json
from pathlib import Path

import pytest

from parproof.evidence.exchange.importing import import_files

pytestmark = pytest.mark.selfcheck
EXAMPLES = Path(__file__).parents[2] / "fixtures" / "exchange" / "mechanism"
# No version, no role, a decision in one word that is none, a level that is none.
ALWAYS = {"schema-version", "role-unknown", "decision-is-text", "decision-unknown", "level-not-canonical"}
FAULTS = {
    "zero_stage": ("PAR-ZERO-STATE", {"hardware-is-text", "metric-missing"}),
    "pipeline": ("PAR-PIPELINE-SCHEDULE", {"hardware-is-text", "metric-missing"}),
    "tp_mlp": ("PAR-TENSOR-LAYOUT", set()),
    "ep_dispatch": ("PAR-EXPERT-DISPATCH", {"metric-missing", "memory-of-one-rank"}),
    "collective_matrix": ("PAR-NCCL-COLLECTIVE", {"metric-missing", "unit-gbps"}),
    "comm_overlap": ("PAR-OVERLAP-HOTSPOT", {"metric-missing"}),
    "cp_attention": ("PAR-CONTEXT-RING", set()),
    "replica_routing": ("PAR-REPLICA-ROUTING", {"metric-missing"}),
    "moe_dispatch": (
        "PAR-EXPERT-DISPATCH",
        {"hardware-is-text", "metric-missing", "constant-ratio", "mechanism-as-project"},
    ),
    "smoke": (None, {"hardware-is-text", "mechanism-as-project"}),
}


def read(name):
    """An example, to be changed."""
    return json.loads((EXAMPLES / f"{name}.json").read_text())


def assess(tmp_path, document):
    """The one assessment of a document."""
    path = tmp_path / "foreign.json"
    path.write_text(json.dumps(document))
    (imported,) = import_files([path])
    return imported.assessment


def ids(reasons):
    """Which reasons were given."""
    return {reason.id for reason in reasons}


@pytest.mark.parametrize("name", FAULTS)
def test_each_runner_is_known_by_what_it_writes_and_its_faults_by_name(name, tmp_path):
    """Whatever page number it writes: 46 and 47 have changed places."""
    told = assess(tmp_path, read(name))
    experiment, faults = FAULTS[name]
    assert told.format == f"mechanism-json/{name}"
    assert told.plain_groups()["identity"]["semantic_id"] == experiment
    assert ids(told.findings) == ALWAYS | faults
    assert told.at_most()[0] == "gpu_smoke"
    assert {"mean-only", "synthetic-model", "correctness-not-judged", "no-sealed-observation"} <= ids(
        told.limits
    )


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("comm_overlap", "synthetic-overlap"),
        ("cp_attention", "all-gather-no-ring"),
        ("replica_routing", "replica-gemm"),
        ("collective_matrix", "no-bus-factor"),
        ("ep_dispatch", "logical-bytes"),
        ("smoke", "no-warm-up"),
        ("smoke", "no-repeats"),
        ("ep_dispatch", "page-number"),
    ],
)
def test_what_a_runner_cannot_show_is_told(name, limit, tmp_path):
    """Also where it claims nothing of the kind."""
    assert limit in ids(assess(tmp_path, read(name)).limits)


def test_ratios_that_were_never_measured_are_named(tmp_path):
    """A balanced all-to-all between two ranks keeps half at home; and loads that nobody counted are not equal."""
    found = assess(tmp_path, read("moe_dispatch")).findings
    where = {finding.where: finding.supported for finding in found if finding.id == "constant-ratio"}
    assert set(where) == {"metrics.cross_rank_token_ratio", "metrics.load_imbalance_ratio"}
    assert where["metrics.cross_rank_token_ratio"] == "0.5 for 2 ranks"


def test_missing_metrics_are_named(tmp_path):
    """What the page asks for, and the runner never measures."""
    (missing,) = [f for f in assess(tmp_path, read("zero_stage")).findings if f.id == "metric-missing"]
    assert missing.supported == "also state bytes, communication bytes"


def test_gigabytes_are_not_gigabits(tmp_path):
    """Eight times the figure would be right under this name."""
    document = read("collective_matrix")
    for row in document["metrics"]["rows"]:
        row["effective_payload_gbps"] *= 8
    assert ids(assess(tmp_path, document).findings) == ALWAYS | {"metric-missing"}


@pytest.mark.parametrize("name", ["zero_stage", "pipeline", "moe_dispatch"])
def test_a_level_that_was_stamped_before_the_run_is_found(name, tmp_path):
    """On a run that failed, on a CPU, and where nothing was measured."""
    failed = read(name) | {"metrics": {}, "failure": "RuntimeError: no GPU", "hardware": "cpu"}
    told = assess(tmp_path, failed)
    assert {"level-before-run", "failure-form"} <= ids(told.findings)
    assert told.at_most()[0] == "theoretical"
    for change in ({"hardware": "cpu"}, {"metrics": {}}):
        assert "level-before-run" in ids(assess(tmp_path, read(name) | change).findings)


def test_the_runner_that_stamps_after_its_run_is_not_blamed_for_a_failure(tmp_path):
    """It starts at a preflight and says that it failed; the word is no level, and that is all."""
    failed = {
        "metrics": {},
        "hardware": {},
        "failure": "E: no GPU",
        "evidence_level": "environment_preflight",
    }
    found = ids(assess(tmp_path, read("tp_mlp") | failed | {"decision": "benchmark_failed"}).findings)
    assert found == ALWAYS | {"failure-form"}
    assert "preflight-as-evidence" in ids(
        assess(tmp_path, read("tp_mlp") | {"evidence_level": "environment_preflight"}).findings
    )


WRONG = [
    ("zero_stage", "max_step_time_ms", 12.4, "slowest-rank"),
    ("zero_stage", "max_peak_memory_mb", 400.0, "slowest-rank"),
    ("zero_stage", "tokens_per_s_proxy", 158762.0, "rate-consistent"),
    ("zero_stage", "step_time_ms_per_rank", [12.9], "ranks-incomplete"),
    ("pipeline", "tokens_per_s_proxy", 95255.8, "rate-consistent"),
    ("tp_mlp", "tokens_per_s_proxy", 31250.0, "rate-consistent"),
    ("tp_mlp", "max_rank_step_ms", 0.0, "not-positive"),
    ("ep_dispatch", "load_skew_ratio", 0.0, "value-derived"),
    ("ep_dispatch", "received_tokens_per_rank", [192, 64], "value-derived"),
    ("cp_attention", "exposed_exchange_ms_proxy", 0.0, "value-derived"),
    ("cp_attention", "kv_exchange_bytes_per_rank", 4194304, "value-derived"),
    ("comm_overlap", "speedup", 2.0, "value-derived"),
    ("comm_overlap", "saved_ms", 0.6, "value-derived"),
    ("moe_dispatch", "tokens_per_s_proxy", 320000.0, "rate-consistent"),
]


@pytest.mark.parametrize(("name", "metric", "value", "reason"), WRONG)
def test_figures_that_do_not_hold_together_are_found_and_support_nothing(
    name, metric, value, reason, tmp_path
):
    """One figure changed, the others as the runner writes them."""
    document = read(name)
    document["metrics"][metric] = value
    told = assess(tmp_path, document)
    assert reason in ids(told.findings)
    assert told.at_most()[0] == "theoretical"


@pytest.mark.parametrize(
    ("name", "metric", "value", "reason"),
    [
        ("collective_matrix", "effective_payload_gbps", 50.0, "rate-consistent"),
        ("collective_matrix", "max_rank_elapsed_ms", 0.05, "slowest-rank"),
        ("replica_routing", "throughput_requests_per_s_proxy", 3000.0, "rate-consistent"),
    ],
)
def test_rows_are_checked_one_by_one(name, metric, value, reason, tmp_path):
    """The second row is named."""
    document = read(name)
    document["metrics"]["rows"][1][metric] = value
    (found,) = [finding for finding in assess(tmp_path, document).findings if finding.id == reason]
    assert found.where.startswith("metrics.rows[1].")


def test_a_mechanism_under_a_projects_role_is_found(tmp_path):
    """Rule 3: the project fixes model, input and stack again, and measures."""
    document = read("zero_stage") | {"role": "training_state_parallel"}
    assert "mechanism-as-project" in ids(assess(tmp_path, document).findings)
