"""Times that ranks measured reach pytest-benchmark unchanged, or are said not to be measured."""

import json

import pytest

pytestmark = pytest.mark.selfcheck

CASE = """
def test_times(timings):
    timings.record("small", [[0.5, 0.1, 0.2], [0.4, 0.3, 0.1]], warmup=1)
    timings.record("large", [[5.0, 1.0, 2.0], [4.0, 3.0, 1.0]], warmup=1)
    timings.publish()
"""


@pytest.fixture
def project(pytester, monkeypatch):
    """One test that publishes two timings; pytest-benchmark takes a session with this variable for a worker."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile(CASE)
    return pytester


def test_the_slowest_rank_of_each_call_is_what_pytest_benchmark_gets(project):
    """Its own clock is not asked: the test took no time at all."""
    project.runpytest_subprocess("--benchmark-json", "b.json").assert_outcomes(passed=1)
    (found,) = json.loads((project.path / "b.json").read_text())["benchmarks"]
    assert found["stats"]["data"] == pytest.approx([5.0, 3.0, 2.0])
    assert found["extra_info"]["median_s"] == {"small": 0.3, "large": 3.0}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["-n1"], "other workers share the cores"),
        (["--benchmark-disable"], "--benchmark-disable was given"),
        (["-p", "no:benchmark"], "pytest-benchmark is not loaded"),
    ],
    ids=["xdist", "disabled", "absent"],
)
def test_what_cannot_be_measured_is_skipped_with_the_reason(options, reason, project):
    """Never a number from somewhere else."""
    result = project.runpytest_subprocess("-rs", *options)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"*not measured: {reason}*"])
