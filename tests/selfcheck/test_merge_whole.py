"""Merged evidence is audited as one run: what only the whole can show, what only a forger would change, real shards."""

import json
import shutil
from pathlib import Path

import pytest

from parproof.evidence import canonical
from parproof.evidence.audit import audit
from parproof.evidence.merge import merge

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(180)]
ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures" / "evidence"
FLAKY = "tests/mechanisms/test_nccl_collective.py::test_c1[native]"
OVERLAP = "at the same time on node-a: aaaaaaaa, bbbbbbbb;"

CASES = """
import json, os, pathlib, pytest

def test_left(evidence): pass

@pytest.mark.parametrize("value", [1, 2])
def test_right(evidence, value, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", "name": "a", "ts": value, "dur": 2}]}))
    evidence.keep_trace(path)

def test_flaky(evidence): assert "RETRY" in os.environ

def test_nobody_selects(): pass
"""


@pytest.fixture
def tools(monkeypatch):
    """The module that makes and spoils the fixtures."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import make_evidence_fixtures
    import merge_fixtures

    return make_evidence_fixtures, merge_fixtures


@pytest.fixture
def merged(tmp_path):
    """A copy of the merged fixture."""
    return Path(shutil.copytree(FIXTURES / "merged", tmp_path / "merged"))


def manifest(directory):
    """Of an evidence directory."""
    return json.loads((directory / "manifest.json").read_text())


def test_real_shards_and_a_retry_make_one_run(pytester, monkeypatch):
    """Three pytest invocations; traces travel, the deselected are those that nobody ran, and the failure stays."""
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile(test_cases=CASES)
    selections = {"a": "left", "b": "right or flaky", "c": "flaky"}
    for name, selection in selections.items():
        if name == "c":
            monkeypatch.setenv("RETRY", "1")
        pytester.runpytest_subprocess("-k", selection, "--evidence", name, "--junitxml", f"{name}.xml")
    out = pytester.path / "out"
    assert merge([pytester.path / name for name in selections], out).findings == []
    told = manifest(out)
    assert told["counts"] == {"ok": 3, "failed": 1, "blocked": 0, "skipped": 0}
    assert (told["flaky"], told["exit_status"]) == (["test_cases.py::test_flaky"], 1)
    assert (len(told["collected"]), told["num_deselected"]) == (4, 1)
    assert len(list((out / "artefacts").iterdir())) == 2
    # One after the other on this machine: no disturbance to tell of.
    assert not [text for text in told["merged"]["differences"] if "at the same time" in text]
    junit = [pytester.path / f"{name}.xml" for name in selections]
    assert audit(out, junit).findings == []
    # Without the shard in which it failed, JUnit says that the flaky test passed.
    assert {f.rule for f in audit(out, junit[::2]).findings} == {"junit-agrees"}


@pytest.mark.parametrize(("host", "told"), [("node-a", True), ("node-b", False)])
def test_shards_of_one_machine_at_one_time_are_said_to_disturb_each_other(host, told, tools, tmp_path):
    """On two machines they do not."""
    make, _ = tools
    names = ("value", "ledger", "defect", "skip", "plain")  # without samples, which would be one timing twice
    for name, run_id, machine, after_s in (("one", "a" * 32, "node-a", 0.0), ("two", "b" * 32, host, 0.05)):
        directory = make.Directory(names, run_id=run_id, machine=machine, after_s=after_s)
        directory.write(tmp_path / name)
    assert merge([tmp_path / "one", tmp_path / "two"], tmp_path / "out").findings == []
    found = manifest(tmp_path / "out")["merged"]["differences"]
    assert any(OVERLAP in text for text in found) == told
    assert "attempts beside the first, of which the worst counts: 5" in found
    assert manifest(tmp_path / "out")["counts"] == {"ok": 3, "failed": 1, "blocked": 0, "skipped": 1}


@pytest.mark.parametrize("whole", [True, False])
def test_a_required_claim_may_be_shown_by_another_shard(whole, tools, tmp_path):
    """Alone a shard that only skipped it does not show it; merged with the others it need not."""
    make, _ = tools
    skipping, showing = make.Directory(run_id="a" * 32), make.Directory(run_id="b" * 32, after_s=60)
    make.LIES["required-claims"].deed(skipping)
    skipping.records = skipping.records[1:2]
    # The other has the claim, or has everything but the claim.
    showing.records = showing.records[1:2] if whole else showing.records[:1]
    showing.records[0]["identity"]["nodeid"] += "elsewhere"
    for run_id, directory in (("a" * 32, skipping), ("b" * 32, showing)):
        directory.manifest["collected"] = [r["identity"]["nodeid"] for r in directory.records]
        directory.write(tmp_path / run_id[0])
    assert {f.rule for f in audit(tmp_path / "a").findings} == {"required-claims"}
    result = merge([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    assert {f.rule for f in result.findings} == (set() if whole else {"required-claims"})
    assert audit(tmp_path / "out").findings == result.findings


def another_manifest(path, records, manifest):
    """What was kept of a shard is edited, and bound again."""
    kept = path / "shards" / ("b" * 32) / "manifest.json"
    kept.write_text(kept.read_text().replace('"fixture"', '"fiction"'))


def another_command(path, records, manifest):
    """Nothing else follows from how a shard was called."""
    kept = path / "shards" / ("b" * 32) / "manifest.json"
    kept.write_text(kept.read_text().replace('"-m","cpu"', '"-m","all"'))


def another_environment(path, records, manifest):
    """The machine of a shard gets another name."""
    kept = path / "shards" / ("b" * 32) / "environment.json"
    kept.write_text(kept.read_text().replace("node-b", "node-a"))


def no_origin(path, records, manifest):
    """A record that was in no shard."""
    del records[2]["origin"]


def digest_typed_in(path, records, manifest):
    """The record is what it was, and is said to have been another."""
    records[2]["origin"]["digest"] = "d" * 64


def strangers(path, records, manifest):
    """A record of a shard that is not there."""
    records[2]["origin"]["run_id"] = "e" * 32


def other_order(path, records, manifest):
    """The passing attempt first, so that the failing one looks like a change."""
    records.insert(0, records.pop())
    del records[0]["attempt"]
    records[1]["attempt"] = 2


def file_gone(path, records, manifest):
    """A file of a shard is left out of the whole."""
    name = f"shards/{'b' * 32}/environment.json"
    (path / name).unlink()
    del manifest["files"][name]


def a_link(path, records, manifest):
    """What is kept of a shard lies elsewhere."""
    (path / "shards").rename(path.with_name("elsewhere"))
    (path / "shards").symlink_to(path.with_name("elsewhere"))


def no_merge(path, records, manifest):
    """Records with origins in what says it is a single run."""
    del manifest["merged"]


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        (another_manifest, {"manifest-bound", "origins-kept"}),
        (another_command, {"manifest-bound"}),
        (another_environment, {"origins-kept", "merge-follows"}),
        (no_origin, {"origins-kept"}),
        (digest_typed_in, {"origins-kept"}),
        (strangers, {"origins-kept"}),
        (other_order, {"origins-kept"}),
        (file_gone, {"origins-kept"}),
        (a_link, {"origins-kept", "files-bound"}),
        (no_merge, {"origins-kept"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_a_forger_changes_in_merged_evidence_is_found(change, rules, merged, tools):
    """Chained, bound and digested again each time."""
    tools[1].reseal(merged, change)
    assert {finding.rule for finding in audit(merged).findings} == rules


@pytest.mark.parametrize(
    ("lie", "rule", "where"),
    [
        ({"exit_status": 0}, "counts", "shard aaaaaaaa: run"),
        ({"flaky": [FLAKY]}, "flaky-named", f"shard aaaaaaaa: {FLAKY}"),
        ({"ended": "2026-01-02T03:04:04.000000+00:00"}, "clock-forward", "run"),
        ({"last_record": "f" * 64}, "origins-kept", "shard aaaaaaaa"),
        ({"num_records": 5}, "origins-kept", "shard aaaaaaaa"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_the_rules_of_a_single_run_hold_for_each_shard(lie, rule, where, merged, tools):
    """A shard that was never sound is not made sound by keeping it whole."""

    def keep_a_lie(path, records, manifest):
        kept = path / "shards" / ("a" * 32) / "manifest.json"
        told = json.loads(kept.read_text()) | lie
        del told["digest"]
        told["digest"] = manifest["merged"]["shards"][0]["digest"] = canonical.digest(told)
        kept.write_text(canonical.dumps(told) + "\n")

    tools[1].reseal(merged, keep_a_lie)
    found = {(finding.rule, finding.record) for finding in audit(merged).findings}
    assert (rule, where) in found
    # The run id of the whole follows from the digests of its shards.
    assert {name for name, _ in found} == {rule, "merge-follows"}
