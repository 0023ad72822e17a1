"""A quantity is a finite number and not below zero, wherever it stands in whichever format; fields have their types."""

import copy
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parproof.cli import main
from parproof.evidence.audit.reading import parse
from parproof.evidence.exchange import importing
from parproof.evidence.exchange.assessment import NotFinite
from parproof.evidence.exchange.quantities import SIGNED, quantity_of

pytestmark = pytest.mark.selfcheck
EXCHANGE = Path(__file__).parents[2] / "fixtures" / "exchange"
SMOKE = EXCHANGE / "v1" / "smoke.json"
LINES = [
    (path, number, line)
    for path in sorted(EXCHANGE.rglob("*.json*"))
    for number, line in enumerate(
        path.read_bytes().splitlines() if path.suffix == ".jsonl" else [path.read_bytes()]
    )
]
TABLES = sorted(EXCHANGE.rglob("*.txt"))
# Names of which nobody can know: versions and switches. A ratio may be what it is, but is a number.
NO_QUANTITY = {"version", "nccl_version", "validation", "graph", "group", "device"}
ANY_SIGN = {"cross_rank_token_ratio", "load_imbalance_ratio", "random_range_ratio"}


def told(document):
    """What an import makes of one document."""
    return next(found for recognise in importing.RECOGNISERS if (found := recognise(document)) is not None)


def leaves(value, path=()):
    """The path of every number."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield from leaves(item, (*path, name))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path


def put(document, path, value):
    """A copy with another value at a path."""
    copied = copy.deepcopy(document)
    at = copied
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    return copied


def reasons(assessment):
    """Comparable findings."""
    return {(reason.id, reason.where) for reason in assessment.findings}


@pytest.mark.parametrize("value", [-5, "word"])
@pytest.mark.parametrize(
    ("path", "number", "line"), LINES, ids=[f"{path.parent.name}-{path.stem}-{n}" for path, n, _ in LINES]
)
def test_no_number_of_any_example_can_be_below_zero_or_a_word(path, number, line, value):
    """Every leaf, one at a time, gives a finding that was not there; but for those of which nobody can know."""
    document = parse(line, constant=NotFinite)
    before = reasons(told(document))
    found = list(leaves(document))
    assert found or document["record_type"] in ("artifact_manifest",)
    silent = {
        [name for name in leaf if isinstance(name, str)][-1]
        for leaf in found
        if not reasons(told(put(document, leaf, value))) - before
    }
    assert silent <= NO_QUANTITY | (ANY_SIGN if value == -5 else set())


@pytest.mark.parametrize("value", ["-5", "word"])
@pytest.mark.parametrize("path", TABLES, ids=[path.stem for path in TABLES])
def test_no_number_of_any_table_can_be_below_zero_or_a_word(path, value, tmp_path):
    """Rows, settings, and the end; `root` is -1 by itself, and switches and versions are no quantities."""
    text, copied = path.read_text(), tmp_path / "table"
    before = reasons(importing.import_files([path])[0].assessment)
    for found in re.finditer(r"(?<=[ :])\d[\d.e+]*(?=[ (\n]|$)", text):
        line = text[text.rfind("\n", 0, found.start()) + 1 : found.start()]
        if "Rank " in line or line.endswith(("version ", "validation: ", "graph: ")):
            continue
        copied.write_text(text[: found.start()] + value + text[found.end() :])
        assessment = importing.import_files([copied])[0].assessment
        assert assessment is not None, line + value
        assert reasons(assessment) - before, line + value


CHANGES = [
    ("not-positive", "metrics.tokens_per_s", -5),
    ("not-positive", "throughput", -5),
    ("not-positive", "metrics.throughput", -5),
    ("not-positive", "step_time_ms", -5),
    ("not-positive", "metrics.ttft_ms", {"p50": 3.0, "p95": -1}),
    ("not-positive", "metrics.tokens_per_s", {"zero2": -5}),
    ("not-positive", "metrics.stepTimeMs", -5),
    ("not-positive", "metrics.bus GB/s", -5),
    ("not-positive", "metrics.artifacts", {"step_time_ms": -5}),
    ("not-positive", "world_size", 0),
    ("not-finite", "world_size", "two"),
    ("not-finite", "hardware.world_size", [2]),
    ("not-finite", "metrics.tokens_per_s", True),
    ("not-finite", "metrics.step_time_ms_per_rank", [31.0, "fast"]),
    ("not-finite", "metrics.loss", "low"),
    ("field-type", "world_size", 2.5),
    ("failure-form", "failure", []),
    ("failure-form", "failure", 0),
    ("field-type", "artifacts", 7),
    ("field-type", "sources", "x"),
    ("field-type", "sources", [7]),
    ("field-type", "project", ["PAR-TRAINING-STATE"]),
    ("field-type", "strategy", 3),
    ("field-type", "backend", False),
]


@pytest.mark.parametrize(("reason", "place", "value"), CHANGES, ids=[f"{p}={v}" for _, p, v in CHANGES])
def test_a_wrong_value_is_found_by_name_and_place(reason, place, value, tmp_path):
    """One change of a record without a finding; exit status 1, and no such number supports smoke."""
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(put(json.loads(SMOKE.read_text()), place.split("."), value)))
    (imported,) = importing.import_files([path])
    assert any(name == reason and where.startswith(place) for name, where in reasons(imported.assessment))
    assert main(["import", str(path)]) == 1
    if reason in ("not-positive", "not-finite"):
        assert imported.assessment.at_most()[0] == "theoretical"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("metrics.loss", -0.5),
        ("metrics.saved_ms", -0.1),
        ("metrics.scaling_ratio", -1.0),
        ("metrics.ttft_ms", None),
        ("metrics.error", "out of memory"),
        ("metrics.latency_unit", "ms"),
        ("metrics.units", {"step_time_ms": "milliseconds"}),
        ("hardware.memory", "80 GB"),
        ("workload.payload_elements", "1024,4096"),
        ("workload.requests", "poisson"),
        ("artifacts", {"step_time_ms": "steps.json"}),
        ("time", "2026-01-02T03:04:05"),
    ],
)
def test_what_may_be_so_is_not_found(place, value):
    """Losses and differences below zero, silence, and words that are about a quantity."""
    assert told(put(json.loads(SMOKE.read_text()), place.split("."), value)).findings == []


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    prefix=st.from_regex(r"[a-z]{3,8}", fullmatch=True).filter(lambda part: quantity_of(part) is None),
    quantity=st.sampled_from(
        ["step_time_ms", "tokens_per_s", "request_count", "wire_bytes", "world_size", "bus_GBps"]
    ),
    value=st.one_of(st.floats(-1e9, -1e-9), st.integers(-(10**9), -1), st.text("abc -", min_size=1)),
    inside=st.sampled_from(("metrics", "workload", "hardware")),
)
def test_no_prefix_hides_a_quantity(prefix, quantity, value, inside):
    """Whatever stands before the unit, unless it says that it is a difference."""
    name = f"{prefix}_{quantity}"
    document = put(json.loads(SMOKE.read_text()), (inside, name), value)
    found = quantity_of(name)
    if found is not None and not found.signed:
        assert f"{inside}.{name}" in {where for _, where in reasons(told(document))}
    else:
        assert prefix in SIGNED


def test_nothing_that_was_read_leaves_no_directory(tmp_path, capsys):
    """Unreadable files are told on stdout with exit status 2; the output is not made, not even empty."""
    (tmp_path / "foreign").write_text("no table")
    output = tmp_path / "out"
    assert main(["import", str(tmp_path / "foreign"), "--output", str(output)]) == 2
    assert "unreadable" in capsys.readouterr().out
    assert not output.exists()
    assert main(["import", str(tmp_path / "foreign"), str(SMOKE), "--output", str(output)]) == 2
    assert len(list(output.iterdir())) == 1
