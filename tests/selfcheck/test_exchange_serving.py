"""Result files of vLLM's and SGLang's serving benchmarks: do the figures hold together, and what do they leave out?"""

import json
from pathlib import Path

import pytest

from parproof.cli import main
from parproof.evidence.exchange.importing import import_files

pytestmark = pytest.mark.selfcheck
EXAMPLES = Path(__file__).parents[2] / "fixtures" / "exchange" / "serving"
VLLM = json.loads((EXAMPLES / "vllm.json").read_text())
SGLANG = json.loads((EXAMPLES / "sglang.jsonl").read_text().splitlines()[1])


def assess(tmp_path, document):
    """The one assessment of a document."""
    path = tmp_path / "foreign.json"
    path.write_text(json.dumps(document))
    (imported,) = import_files([path])
    return imported.assessment


def ids(reasons):
    """Which reasons were given."""
    return {reason.id for reason in reasons}


def test_sound_files_of_either_engine_are_supported_as_they_are(capsys):
    """They claim no level; what they cannot support is told."""
    files = sorted(EXAMPLES.iterdir())
    assert main(["import", *map(str, files)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("vLLM serving benchmark") == shown.count("SGLang serving benchmark") == 2
    told = import_files([EXAMPLES / "vllm.json"])[0].assessment
    assert told.at_most()[0] == "cpu_simulation"
    limits = {
        "hardware-not-recorded",
        "version-not-recorded",
        "single-run",
        "client-side",
        "accelerator-not-named",
    }
    assert limits <= ids(told.limits)
    assert told.plain_groups()["time"]["median_s"] == pytest.approx(0.9401)


def test_infinity_as_a_rate_is_no_json_and_no_fault(tmp_path):
    """SGLang writes it for «all at once»; other readers refuse the file."""
    first, second = import_files([EXAMPLES / "sglang.jsonl"])
    assert "not-strict-json" in ids(first.assessment.limits)
    assert "not-strict-json" not in ids(second.assessment.limits)
    assert "not-finite" in ids(assess(tmp_path, SGLANG | {"mean_ttft_ms": float("nan")}).findings)


def test_a_server_that_told_its_device_is_taken_at_its_word_up_to_smoke(tmp_path):
    """And one that did not, or that has none, not even so far."""
    assert assess(tmp_path, SGLANG).at_most()[0] == "gpu_smoke"
    for server in (None, {}, {"device": "cpu"}):
        assert assess(tmp_path, SGLANG | {"server_info": server}).at_most()[0] == "cpu_simulation"


VLLM_FAULTS = [
    ("rate-consistent", {"request_throughput": 9.0}),
    ("rate-consistent", {"output_throughput": 1124.0}),
    ("rate-consistent", {"total_token_throughput": 5000.0}),
    ("rate-consistent", {"duration": 10.0}),
    ("not-positive", {"duration": 0.0}),
    ("not-positive", {"mean_tpot_ms": -1.0}),
    ("count-consistent", {"failed": 3}),
    ("requests-failed", {"failed": 20, "completed": 80, "request_throughput": 6.4}),
    ("percentile-order", {"p99_ttft_ms": 12.0}),
    ("percentile-order", {"p90_ttft_ms": 70.0}),
    ("latency-order", {"median_ttft_ms": 990.0, "p99_ttft_ms": 990.0}),
    ("count-consistent", {"output_lens": [128] * 99 + [127]}),
    ("count-consistent", {"ttfts": [0.042] * 99}),
    ("value-derived", {"ttfts": [0.052] * 100}),
]


@pytest.mark.parametrize(
    ("reason", "change"), VLLM_FAULTS, ids=[f"{n}-{row[0]}" for n, row in enumerate(VLLM_FAULTS)]
)
def test_figures_of_vllm_that_do_not_hold_together_are_found(reason, change, tmp_path):
    """Throughput times duration is the number of tokens; and so on."""
    told = assess(tmp_path, VLLM | change)
    assert reason in ids(told.findings)


def test_before_failures_were_told_they_are_what_is_missing(tmp_path):
    """Older files give the number of prompts and of completed requests only."""
    old = json.loads((EXAMPLES / "vllm_before_failed.json").read_text())
    short = old | {"completed": 90, "request_throughput": 7.2}
    assert ids(assess(tmp_path, short).findings) == {"requests-failed"}
    assert "count-consistent" in ids(assess(tmp_path, old | {"num_prompts": 90}).findings)


SGLANG_FAULTS = [
    ("rate-consistent", {"input_throughput": 4096.0}),
    ("rate-consistent", {"total_throughput": 2048.0}),
    ("value-derived", {"concurrency": 8.0}),
    ("value-derived", {"max_concurrency": 2}),
    ("percentile-order", {"p99_itl_ms": 7.9}),
    ("percentile-order", {"max_itl_ms": 1.0}),
    ("latency-order", {"mean_ttft_ms": 701.0}),
    ("requests-failed", {"errors": ["refused"] + [""] * 80}),
]


@pytest.mark.parametrize(
    ("reason", "change"), SGLANG_FAULTS, ids=[f"{n}-{row[0]}" for n, row in enumerate(SGLANG_FAULTS)]
)
def test_figures_of_sglang_that_do_not_hold_together_are_found(reason, change, tmp_path):
    """Also concurrency, which is rate times latency."""
    assert assess(tmp_path, SGLANG).findings == []
    assert reason in ids(assess(tmp_path, SGLANG | change).findings)


def test_a_run_in_which_nothing_completed_supports_nothing(tmp_path):
    """Whatever its other figures."""
    told = assess(tmp_path, VLLM | {"completed": 0, "failed": 100, "request_throughput": 0.0})
    assert told.at_most()[0] == "theoretical"
