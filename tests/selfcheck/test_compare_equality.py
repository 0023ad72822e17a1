"""Two runs are compared when one declared factor differs and nothing else; a refusal names field, values and next step."""

import json
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from parproof.errors import UsageError
from parproof.evidence.audit import Unusable, audit, require_sound
from parproof.evidence.compare import Incomparable, Options, Varies, compare, runs

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
make = SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "make_comparison_fixtures.py")))
TORCH = {"packages.torch": "2.14.0"}


@pytest.fixture
def pair(tmp_path):
    """Write a baseline, and a candidate with `changes` of its outcomes and `told` of its environment."""

    def written(second=None, **told):
        first = make.write(tmp_path / "a", make.benchmark(1))
        return [first], [make.write(tmp_path / "b", second or make.benchmark(2), **told)]

    return written


@pytest.mark.parametrize(
    ("name", "value", "default"),
    [
        ("machine.cpu_model", "another CPU", "made-up CPU (for tests)"),
        ("machine.num_cpus", 16, "8"),
        ("machine.memory_bytes", 1 << 37, str(1 << 36)),
        ("packages.torch", "2.14.0", "2.13.0"),
        ("packages.nccl", "2.30.1", "None"),
        ("python.version", "3.12.1", "3.11.7"),
        ("variables.OMP_NUM_THREADS", "4", "None"),
    ],
)
def test_machine_and_versions_are_held_equal(name, value, default, pair):
    """The refusal names the field and both values."""
    with pytest.raises(Incomparable) as refused:
        compare(*pair(factors={name: value}))
    (difference,) = refused.value.differences
    assert (difference.name, difference.baseline, difference.candidate) == (name, default, str(value))
    assert default in str(refused.value)
    assert "next: " in str(refused.value)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("workload.size", {"workload": {"size": 128, "dtype": "float32"}}),
        ("workload.dtype", {"workload": {"size": 64, "dtype": "bfloat16"}}),
        ("workload_id", {"workload_id": "another"}),
        ("lane", {"lane": "cuda1"}),
        ("model", {"model": "another"}),
        ("claims", {"claims": ("C2",)}),
        ("parameters.op", {"parameters": {"op": "all_gather"}}),
        ("launcher", {"runs": [(make.run_of() | {"launcher": "torchrun"}, make.ledger())]}),
        (
            "world_size",
            {"runs": [(make.run_of(world_size=4) | {"calls_seen": 4}, make.ledger(world_size=4))]},
        ),
    ],
)
def test_workload_and_placement_of_every_test_are_held_equal(field, changes, tmp_path):
    """In the one record of three in which it differs."""
    others = [make.outcome("test_c3", "C3"), make.outcome("test_c4", "C4")]
    first = make.write(tmp_path / "a", [make.outcome("test_c1"), *others])
    claim = changes.pop("claims", ("C1",))[0]
    second = make.write(tmp_path / "b", [make.outcome("test_c1", claim, **changes), *others])
    assert audit(second).findings == []
    with pytest.raises(Incomparable) as refused:
        compare([first], [second])
    assert field in {difference.name for difference in refused.value.differences}
    assert all(d.num_records == 1 and "test_c1" in d.record for d in refused.value.differences)


def test_ranks_on_other_devices_warm_up_and_accelerator_are_held_equal(tmp_path):
    """Two ranks that change places; twice the warm-up; another GPU."""
    swapped = make.run_of() | {"calls_seen": 2}
    swapped["ranks"] = [r | {"device": f"cuda:{1 - r['rank']}"} for r in swapped["ranks"]]
    time = make.timing("step", 1)
    first = make.write(tmp_path / "a", [make.outcome("test_c1", times=[time])])
    other = make.outcome("test_c1", times=[time | {"warmup": 4}], runs=[(swapped, make.ledger())])
    second = make.write(tmp_path / "b", [other], accelerator="another GPU")
    with pytest.raises(Incomparable) as refused:
        compare([first], [second])
    assert {d.name for d in refused.value.differences} == {"ranks", "accelerator", "warm-up of step"}


def test_the_declared_factor_may_differ_and_no_second_one(pair):
    """«Change exactly one factor and measure again»."""
    sides = pair(factors=TORCH, source="1")
    for declared in ("packages.torch", "source"):
        with pytest.raises(Incomparable) as refused:
            compare(*sides, Options(Varies(declared)))
        assert {d.name for d in refused.value.differences} == {"packages.torch", "source"} - {declared}


def test_what_was_declared_is_in_the_document_and_what_is_equal_too(pair):
    """A place is told and not compared: equal machines may be."""
    told = compare(
        *pair(factors=TORCH | {"machine.hostname": "elsewhere"}), Options(Varies("packages.torch"))
    )
    assert told["varied"] == [{"name": "packages.torch", "baseline": "2.13.0", "candidate": "2.14.0"}]
    assert told["equal"]["machine.num_cpus"] == 8
    assert [place["name"] for place in told["not_compared"]] == ["machine.hostname"]


@pytest.mark.parametrize(
    "factor", ["workload", "workload.size", "machine.num_cpus", "world_size", "model", ""]
)
def test_workload_and_hardware_cannot_be_declared(factor):
    """Another one is another baseline."""
    with pytest.raises(UsageError, match="another baseline"):
        Varies(factor)


def test_memory_may_differ_by_what_a_kernel_keeps_back(pair):
    """Not by more: see the table above."""
    assert compare(*pair(factors={"machine.memory_bytes": (1 << 36) - 4096}))["varied"] == []


def test_subjects_of_one_run_are_compared_with_each_other(tmp_path):
    """By test and parameters; without --from and --to it is not clear which is which."""
    native = {"name": "torch_native", "address": "parproof.subjects.torch_native:SUBJECT"}
    times = [make.timing("step", seed, scale=scale, repeats=20) for seed, scale in ((1, 1.0), (2, 2.0))]
    outcomes = [
        make.outcome("test_c8[reference-cpu-x]", "C8", times=times[:1]),
        make.outcome("test_c8[torch_native-cpu-x]", "C8", times=times[1:], subject=native),
    ]
    run = [make.write(tmp_path / "a", outcomes)]
    told = compare(run, run, Options(Varies("subject", "reference", "torch_native")))
    (one,) = told["times"]
    assert (one["test"].partition("::")[2], one["verdict"]) == ("test_c8[*-cpu-x]", "slower")
    assert told["varied"][0]["candidate"].startswith("torch_native")
    with pytest.raises(UsageError, match="same run"):
        compare(run, run, Options(Varies("subject", "reference", "reference")))
    other = [make.write(tmp_path / "b", outcomes)]
    with pytest.raises(UsageError, match="choose with --from"):
        compare(run, other, Options(Varies("subject")))


@pytest.mark.parametrize("how", ["twice", "copied", "within_a_side"])
def test_one_run_is_never_taken_for_two(how, pair, tmp_path):
    """Also where it was copied to another place."""
    first, second = pair()
    copied = Path(shutil.copytree(first[0], tmp_path / "c"))
    sides = {
        "twice": (first, first),
        "copied": (first, [copied]),
        "within_a_side": ([*first, copied], second),
    }[how]
    with pytest.raises(UsageError, match="are the same run"):
        compare(*sides)


def test_runs_of_one_side_are_equal_too(pair, tmp_path):
    """Otherwise the spread between them would be that of two versions."""
    first, second = pair(factors=TORCH)
    mixed = make.write(tmp_path / "c", make.benchmark(3))
    with pytest.raises(Incomparable, match="among runs of the candidate"):
        compare(first, [*second, mixed], Options(Varies("packages.torch")))


def test_evidence_with_findings_is_refused_with_the_first(pair):
    """A level that was typed in reaches no comparison."""
    first, second = pair()
    with (second[0] / "records.jsonl").open("a") as file:
        file.write("\n")
    with pytest.raises(UsageError, match=r"does not pass its audit.*files-bound records\.jsonl"):
        compare(first, second)


def test_evidence_that_changes_between_audit_and_reading_is_refused(pair, monkeypatch):
    """What is compared is what was audited."""
    first, second = pair()

    def audit_then_edit(directory, *told):
        require_sound(directory, *told)
        records = directory / "records.jsonl"
        records.write_text(records.read_text().replace('"ok"', '"failed"', 1))

    monkeypatch.setattr(runs, "require_sound", audit_then_edit)
    with pytest.raises(Unusable, match="changed while it was read"):
        compare(first, second)


def test_runs_of_other_tests_are_not_compared(pair, tmp_path):
    """Nothing in common is a refusal; an unknown experiment too."""
    first, _ = pair()
    other = [make.write(tmp_path / "c", [make.outcome("test_other")])]
    with pytest.raises(UsageError, match="no test is on both sides"):
        compare(first, other)
    with pytest.raises(UsageError, match="PAR-ZERO-STATE"):
        Options(experiments=frozenset({"PAR-ZERO"}))


def test_the_made_up_runs_are_those_that_the_tool_writes(tmp_path):
    """And each says that it is made up."""
    differences = runpy.run_path(str(ROOT / "tools" / "fixture_files.py"))["differences"]
    make.write_all(tmp_path / "made")
    assert differences(tmp_path / "made", make.FIXTURES) == []
    for manifest in make.FIXTURES.glob("*/manifest.json"):
        assert json.loads(manifest.read_text())["run_label"] == "made for tests: no GPU took part"
