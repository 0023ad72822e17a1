"""The published contract `distributed-benchmark/v1`: fields, roles, and what the readers of the pages look for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any

SCHEMA_VERSION = "distributed-benchmark/v1"
REQUIRED = (
    "schema_version",
    "project",
    "role",
    "workload",
    "hardware",
    "metrics",
    "evidence_level",
    "failure",
    "decision",
)
MAPPINGS = ("workload", "hardware", "metrics", "decision")

# Roles exist for the four projects and for nothing else: a mechanism has none.
ROLES = {
    "PAR-TRAINING-STATE": "training_state_parallel",
    "PAR-MODEL-INTERNAL": "model_internal_parallel",
    "PAR-MOE-EXPERT": "moe_expert_parallel",
    "PAR-DISTRIBUTED-INFERENCE": "distributed_serving",
}
# What the pages read beside the envelope, and look for by name alone.
PAGE_FIELDS = {
    "training_state_parallel": ("strategy",),
    "model_internal_parallel": ("strategy", "mesh", "artifact"),
    "moe_expert_parallel": ("strategy",),
    "distributed_serving": ("strategy", "backend"),
}
SERVING_METRICS = (
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "throughput_tokens_per_s",
    "p95_ms",
    "p99_ms",
    "queue_wait_ms",
    "kv_handoff_bytes",
    "kv_handoff_ms",
    "peak_memory_mb",
    "success_rate",
)
PAGE_METRICS = {"distributed_serving": SERVING_METRICS}

# The six groups of public result fields, stronger than the envelope.
PUBLIC_FIELDS = {
    "identity": ("semantic_id", "workload_id", "run_label", "page", "strategy"),
    "hardware": ("accelerator", "world_size", "rank_to_device", "scope", "links"),
    "communication": ("backend", "collective", "payload_bytes", "call_count", "sync_frequency"),
    "time": ("compute_s", "communication_s", "exposed_s", "median_s", "p95_s"),
    "load": ("per_rank", "max_over_mean", "overflow_or_idle"),
    "conclusion": ("correctness", "failure", "fallback", "evidence_level", "decision"),
}
# Null says something here: that nothing failed, that nothing fell back.
MAY_BE_NULL = ("conclusion.failure", "conclusion.fallback")

LEVELS = ("theoretical", "cpu_simulation", "gpu_smoke", "real_benchmark", "profiler_trace")
# Level → what may be concluded from it, and what may not.
CONCLUSIONS = {
    "theoretical": ("a direction, a bound", "anything measured"),
    "cpu_simulation": (
        "transitions, constraints, comparison of candidates",
        "memory, speed or scaling of GPUs",
    ),
    "gpu_smoke": ("that the path runs and the interface is usable", "performance"),
    "real_benchmark": ("a comparison in this configuration", "other configurations"),
    "profiler_trace": ("where the bottleneck is", "a verdict without a run of equal workload"),
}
DECISIONS = ("accept", "tune", "reject", "pending", "not_evaluated")


def errors(record: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """(reason, where, found, wanted) for whatever the published validator refuses."""
    missing = [name for name in REQUIRED if name not in record]
    # Version and role have reasons of their own.
    if others := [name for name in missing if name not in ("schema_version", "role")]:
        yield "field-missing", "(top)", f"no {', '.join(others)}", f"all of {', '.join(REQUIRED)}"
    if record.get("schema_version") != SCHEMA_VERSION:
        yield "schema-version", "schema_version", shown(record.get("schema_version")), SCHEMA_VERSION
    role = record.get("role")
    if not isinstance(role, str) or role not in ROLES.values():
        yield "role-unknown", "role", shown(role), f"one of {', '.join(ROLES.values())}"
    for name in MAPPINGS:
        if name in record and not isinstance(record[name], Mapping):
            reason = {"hardware": "hardware-is-text", "decision": "decision-is-text"}.get(
                name, "not-a-mapping"
            )
            yield reason, name, shown(record[name]), "a mapping"
    yield from wrong_types(record)


# Field → types; null where a field may be silent. A page number may be a number.
_TEXT = (str, NoneType)
TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "project": ((str, int), "a word or a page number"),
    "semantic_id": (_TEXT, "a word"),
    "strategy": (_TEXT, "a word"),
    "backend": (_TEXT, "a word"),
    "run_label": (_TEXT, "a word"),
    "artifacts": ((Mapping, list, NoneType), "a mapping or a list"),
    "sources": ((list, NoneType), "a list"),
}


def wrong_types(record: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """(reason, where, found, wanted) for every field of another type than the contract's; a source is a mapping."""
    for name, (types, wanted) in TYPES.items():
        value = record.get(name)
        # A truth value is an int to the language and to nobody else.
        if name in record and (isinstance(value, bool) or not isinstance(value, types)):
            yield "field-type", name, shown(value), wanted
    sources = record.get("sources")
    for place, source in enumerate(sources if isinstance(sources, list) else ()):
        if not isinstance(source, Mapping):
            yield "field-type", f"sources[{place}]", shown(source), "a mapping with path and sha256"


def shown(value: Any) -> str:
    """A foreign value as a few words."""
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 80 else text[:80] + " …"
