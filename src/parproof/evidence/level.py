"""The level and the scope of a record, computed from what was observed and from nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

LEVELS = (
    "theoretical",
    "cpu_simulation",
    "cpu_process_group",
    "gpu_smoke",
    "real_benchmark",
    "profiler_trace",
)
SCOPES = ("single_process", "single_host", "emulated_hosts", "multi_host")

# The source documents know five levels; a process group on CPU is rounded down to the simulation it stands above.
FIVE_LEVELS = {level: level for level in LEVELS} | {"cpu_process_group": "cpu_simulation"}

MIN_REPEATS = 2
TRANSPORTS = ("gloo", "nccl")
# Words by which a stand-in calls itself: its time is no model's and no serving engine's.
_STAND_INS = {"synthetic", "gemm", "matmul", "random", "toy", "fake", "dummy", "mock", "fixture"}


def compute_level(observation: Mapping[str, Any] | None) -> tuple[str | None, str]:
    """(level, why this one and not the next). None for what did not run: an unrun cell is no evidence."""
    if observation is None:
        return None, "nothing was run"
    runs = [*observation["runs"], *observation["failed_runs"]]
    if not runs:
        return "cpu_simulation", "one process ran; no ranks, so no process group"
    short = [run for run in observation["runs"] if run["num_reports"] != run["world_size"]]
    if short:
        return "theoretical", f"{short[0]['num_reports']} of {short[0]['world_size']} ranks reported"
    # Runs of one rank beside others are baselines. Of the others the weakest counts.
    judged = [run for run in runs if run["world_size"] > 1] or runs
    weakest = min((_level_of_run(run) for run in judged), key=lambda found: LEVELS.index(found[0]))
    return _raised(observation, *weakest)


def _level_of_run(run: Mapping[str, Any]) -> tuple[str, str]:
    if run["backend"] not in TRANSPORTS:
        return "cpu_simulation", f"backend {run['backend']} is no real transport"
    if run["world_size"] < 2 or num_processes(run) < run["world_size"]:
        if _num_gpus(run):
            return "gpu_smoke", "one rank on a GPU"
        return "cpu_simulation", "fewer processes than ranks, or one rank"
    if _num_gpus(run):
        return "gpu_smoke", "ranks on GPUs"
    if "problems" in run:
        return "cpu_process_group", "real processes over gloo, whose failure was observed; ranks on CPU"
    if run["calls_seen"] == 0:
        why = "no communication was seen" if run["ledger"] else "the ledger was off, so nothing was seen"
        return "cpu_simulation", f"real processes, but {why}"
    return "cpu_process_group", "real processes and communication over gloo; ranks on CPU"


def _raised(observation: Mapping[str, Any], level: str, why: str) -> tuple[str, str]:
    """A smoke run on two or more GPUs becomes a benchmark, and a benchmark a trace, by what was observed besides."""
    if level != "gpu_smoke":
        return level, why
    missing = [
        text
        for holds, text in (
            (max(map(_num_gpus, observation["runs"]), default=0) >= 2, "two or more GPUs that reported"),
            (observation["workload_id"] is not None, "a fixed workload"),
            ((observation["warmup"] or 0) >= 1, "warm-up"),
            ((observation["repeats"] or 0) >= MIN_REPEATS, "repeats"),
            (is_real_model(observation["model"]), "a real model or backend"),
        )
        if not holds
    ]
    if missing:
        return "gpu_smoke", f"no benchmark without {', '.join(missing)}"
    if not observation["traces"]:
        return "real_benchmark", "repeated, with warm-up, on a fixed workload; no trace was kept"
    return "profiler_trace", "a benchmark with a trace that can be opened again"


def compute_scope(observation: Mapping[str, Any] | None) -> str | None:
    """How far apart the ranks were seen to be."""
    if observation is None:
        return None
    runs = [*observation["runs"], *observation["failed_runs"]]
    found = {_scope_of_run(run) for run in runs} or {"single_process"}
    return max(found, key=SCOPES.index)


def _scope_of_run(run: Mapping[str, Any]) -> str:
    if run["world_size"] < 2:
        return "single_process"
    if run["host_kind"] == "emulated":
        return "emulated_hosts"
    return "multi_host" if len({r["hostname"] for r in run["ranks"]}) > 1 else "single_host"


def is_real_model(name: str | None) -> bool:
    """A name that does not itself say stand-in; whether the model was there, only who ran it knows."""
    return name is not None and not _STAND_INS & set(re.findall("[a-z]+", name.lower()))


def num_processes(run: Mapping[str, Any]) -> int:
    """Ranks that share a process move nothing between processes."""
    return len({(rank["hostname"], rank["pid"]) for rank in run["ranks"]})


def moves_bytes(run: Mapping[str, Any]) -> bool:
    """Was there something to communicate over: a real transport, and a process for each rank?"""
    return run["backend"] in TRANSPORTS and num_processes(run) >= run["world_size"]


def _num_gpus(run: Mapping[str, Any]) -> int:
    return len({(r["hostname"], r["device"]) for r in run["ranks"] if str(r["device"]).startswith("cuda")})


def may_claim_performance(level: str | None) -> bool:
    """Only a benchmark says anything about speed, memory or scaling."""
    return level in ("real_benchmark", "profiler_trace")
