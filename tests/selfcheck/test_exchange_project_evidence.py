"""project-evidence/v1, and what an aggregator makes of several files: no sum is more than its weakest part."""

import json
from pathlib import Path

import pytest

from parproof.cli import main
from parproof.evidence.exchange.importing import import_files

pytestmark = pytest.mark.selfcheck
EXAMPLES = Path(__file__).parents[2] / "fixtures" / "exchange"


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


@pytest.mark.parametrize(
    ("name", "level"),
    [("run_result", "gpu_smoke"), ("experiment_spec", "theoretical"), ("artifact_manifest", "theoretical")],
)
def test_what_claims_no_more_than_it_holds_has_no_finding(name, level, tmp_path):
    """A result with figures; a plan and a manifest, of which nothing ran."""
    path = EXAMPLES / "project_evidence" / f"{name}.json"
    assert main(["import", str(path)]) == 0
    told = assess(tmp_path, read(f"project_evidence/{name}"))
    assert told.at_most()[0] == level
    assert ("nothing-ran" in ids(told.limits)) == (name != "run_result")


def test_a_blocked_preflight_is_no_smoke(tmp_path):
    """The adapter gives every record its default level, also where nothing ran."""
    told = assess(tmp_path, read("project_evidence/blocked"))
    assert ids(told.findings) == {"level-before-run", "level-above-support"}
    assert told.at_most()[0] == "theoretical"


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("level-above-support", {"evidence_level": "real_benchmark"}),
        ("level-not-canonical", {"evidence_level": "production"}),
        ("status-form", {"status": "passed"}),
        ("status-form", {"status": "failed"}),
        ("status-form", {"status": "skipped"}),
        ("status-form", {"failure": {"message": "no"}}),
        ("empty-mapping", {"metrics": {}}),
        ("decision-needs-comparison", {"decision": {"status": "accept"}}),
        ("decision-unknown", {"decision": {"status": "ready"}}),
        ("decision-is-text", {"decision": "pending"}),
        ("hardware-is-text", {"hardware": "a GPU"}),
        ("failure-form", {"failure": "it broke"}),
        ("wrong-and-performance", {"quality": {"correctness": "fail"}}),
        ("not-finite", {"metrics": {"loss": float("inf")}}),
    ],
    ids=range(14),
)
def test_what_a_run_result_claims_too_much_is_found(reason, change, tmp_path):
    """One change of a result without a finding."""
    assert reason in ids(assess(tmp_path, read("project_evidence/run_result") | change).findings)


def test_an_aggregate_is_found_out_by_name(tmp_path):
    """The same file twice, no digests, smoke beside a run of another workload, and ready for review."""
    told = assess(tmp_path, read("aggregate/ready"))
    assert {
        "source-twice",
        "source-undigested",
        "smoke-promoted",
        "sources-unequal",
        "mechanism-as-project",
        "level-not-canonical",
        "decision-unknown",
        "decision-needs-comparison",
    } == ids(told.findings)
    assert "strategy-missing" in ids(told.limits)
    assert told.at_most()[0] == "theoretical"


def test_a_source_under_another_name_is_still_the_same_source(tmp_path):
    """A `path` in the source overrides the real one; contents do not lie."""
    document = read("aggregate/ready")
    document["sources"][1]["path"] = "another.json"
    found = [finding.where for finding in assess(tmp_path, document).findings if finding.id == "source-twice"]
    assert found == ["sources[1]"]


@pytest.mark.parametrize(
    ("change", "is_found"),
    [
        ({"evidence_level": "real_multi_gpu_smoke"}, True),
        ({"evidence_level": "theoretical"}, True),
        ({"evidence_level": "cpu_simulation"}, True),
        ({"failure": "RuntimeError: no"}, True),
        ({"metrics": {}, "evidence_level": "real_multi_gpu_zero_stage"}, True),
        ({}, False),
    ],
    ids=["smoke", "theoretical", "cpu", "failed", "stamped", "benchmark"],
)
def test_what_is_weak_is_not_promoted_by_adding_up(change, is_found, tmp_path):
    """Ready for review over sources of which one is no benchmark."""
    document = read("aggregate/ready")
    document["sources"] = [document["sources"][0] | change]
    document["metrics"]["source_count"] = 1
    assert ("smoke-promoted" in ids(assess(tmp_path, document).findings)) == is_found
    document["decision"] = {"decision": "tune"}
    assert "smoke-promoted" not in ids(assess(tmp_path, document).findings)


def test_the_count_of_sources_is_what_is_there(tmp_path):
    """And a role that was overridden is another project's."""
    document = read("aggregate/ready")
    document["metrics"]["source_count"] = 7
    document["role"] = "moe_expert_parallel"
    assert {"source-count", "role-of-project"} <= ids(assess(tmp_path, document).findings)
