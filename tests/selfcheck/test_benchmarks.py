"""The benchmark harness runs, and its figures are those of its samples."""

import json
import statistics
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(200)]
HARNESS = Path(__file__).parents[2] / "benchmarks" / "harness.py"


def test_the_pool_is_measured_and_written_as_json(pytester):
    """Without PyTorch's harness, which takes minutes. A goal may be missed on a busy machine: that is status 1."""
    report = pytester.path / "bench.json"
    options = ("--world", "2", "--repeats", "2", "--warm", "4", "--no-pytorch", "--json", str(report))
    result = pytester.run(sys.executable, str(HARNESS), *options)
    assert result.ret in (0, 1)
    found = json.loads(report.read_text())
    assert len(found["samples_s"]["pool: isolated test"]) == 2
    for name, samples in found["samples_s"].items():
        assert found["median_s"][name] == statistics.median(samples)
        result.stdout.fnmatch_lines([f"{name} *"])
    limits = found["limits"]["pool: start of ranks"]
    assert limits["met"] == (found["median_s"]["pool: start of ranks"] <= limits["limit_s"])
    assert found["ratios"] == {}
