"""A level follows from what was observed: the whole ladder, and what keeps a run from the next rung."""

import pytest

from parproof.evidence.level import FIVE_LEVELS, LEVELS, compute_level, compute_scope, may_claim_performance

pytestmark = pytest.mark.selfcheck


def run(world_size=2, *, device="cpu", backend="gloo", **changes):
    """A run of real processes on one host."""
    ranks = [
        {
            "rank": r,
            "pid": 100 + r,
            "host": "host0",
            "hostname": "a",
            "device": device if device == "cpu" else f"cuda:{r}",
        }
        for r in range(world_size)
    ]
    facts = {"backend": backend, "world_size": world_size, "ranks": ranks, "host_kind": "real"}
    return facts | {"num_reports": world_size, "calls_seen": 3, "ledger": True} | changes


def observed(*runs, **changes):
    """An observation without any timing."""
    base = {"workload_id": None, "warmup": None, "repeats": None, "model": None, "traces": []}
    return {"runs": list(runs), "failed_runs": []} | base | changes


ON_GPUS = run(device="cuda", backend="nccl")
BENCHMARK = {"workload_id": "w", "warmup": 2, "repeats": 10, "model": "m"}
LADDER = {
    "nothing": (None, None),
    "one_process": (observed(), "cpu_simulation"),
    "fake_backend": (observed(run(backend="fake")), "cpu_simulation"),
    "threads_in_one_process": (
        observed(
            run(ranks=[{"rank": r, "pid": 1, "host": "h", "hostname": "a", "device": "cpu"} for r in (0, 1)])
        ),
        "cpu_simulation",
    ),
    "one_rank": (observed(run(1)), "cpu_simulation"),
    "no_call_seen": (observed(run(calls_seen=0)), "cpu_simulation"),
    "silent_rank": (observed(run(num_reports=1)), "theoretical"),
    "gloo_ranks": (observed(run()), "cpu_process_group"),
    "one_rank_beside_many": (observed(run(1), run()), "cpu_process_group"),
    "many_beside_a_fake": (observed(run(), run(backend="fake")), "cpu_simulation"),
    "seen_to_fail": (observed(failed_runs=[run(problems={"1": "died"})]), "cpu_process_group"),
    "seen_to_fail_on_gpus": (
        observed(failed_runs=[run(device="cuda", backend="nccl", problems={"1": "died"})], **BENCHMARK),
        "gpu_smoke",
    ),
    "failed_benchmark": (
        observed(ON_GPUS, failed_runs=[run(problems={"1": "died"})], **BENCHMARK),
        "cpu_process_group",
    ),
    "timed_gloo_ranks": (observed(run(), **BENCHMARK), "cpu_process_group"),
    "one_gpu": (observed(run(1, device="cuda", backend="nccl"), **BENCHMARK), "gpu_smoke"),
    "two_gpus": (observed(ON_GPUS), "gpu_smoke"),
    "no_workload": (observed(ON_GPUS, **(BENCHMARK | {"workload_id": None})), "gpu_smoke"),
    "no_warmup": (observed(ON_GPUS, **(BENCHMARK | {"warmup": 0})), "gpu_smoke"),
    "one_repeat": (observed(ON_GPUS, **(BENCHMARK | {"repeats": 1})), "gpu_smoke"),
    "no_model": (observed(ON_GPUS, **(BENCHMARK | {"model": None})), "gpu_smoke"),
    "benchmark": (observed(ON_GPUS, **BENCHMARK), "real_benchmark"),
    "benchmark_with_trace": (observed(ON_GPUS, **BENCHMARK, traces=["0" * 64]), "profiler_trace"),
    "trace_of_gloo_ranks": (observed(run(), **BENCHMARK, traces=["0" * 64]), "cpu_process_group"),
}


@pytest.mark.parametrize("case", LADDER)
def test_the_level_is_what_was_seen(case):
    """And the reason is said."""
    observation, expected = LADDER[case]
    level, why = compute_level(observation)
    assert level == expected
    assert why
    assert may_claim_performance(level) == (expected in ("real_benchmark", "profiler_trace"))


@pytest.mark.parametrize(
    ("observation", "expected"),
    [
        (None, None),
        (observed(), "single_process"),
        (observed(run(1)), "single_process"),
        (observed(run()), "single_host"),
        (observed(run(host_kind="emulated")), "emulated_hosts"),
        (observed(run(1), run()), "single_host"),
    ],
    ids=["nothing", "no_ranks", "one_rank", "one_host", "emulated", "widest_run"],
)
def test_the_scope_is_how_far_apart_ranks_were(observation, expected):
    """Hosts count by the name that ranks saw, not by a label."""
    assert compute_scope(observation) == expected


def test_ranks_that_saw_two_hosts_are_on_many():
    """The only way to multi_host."""
    there = run()
    there["ranks"][1]["hostname"] = "b"
    assert compute_scope(observed(there)) == "multi_host"


def test_export_to_five_levels_never_rounds_up():
    """The source documents have no level for process groups on CPU."""
    five = ["theoretical", "cpu_simulation", "gpu_smoke", "real_benchmark", "profiler_trace"]
    assert set(FIVE_LEVELS) == set(LEVELS)
    assert all(LEVELS.index(FIVE_LEVELS[level]) <= LEVELS.index(level) for level in LEVELS)
    assert set(FIVE_LEVELS.values()) == set(five)
