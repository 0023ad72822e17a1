"""JSON of mechanism runners: no version, no schema. Recognised by what each runner always writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parproof.evidence.exchange import assessment, quantities
from parproof.evidence.exchange.assessment import Assessment, close_to, mapping, number, numbers, word
from parproof.evidence.exchange.contract import ROLES
from parproof.evidence.exchange.forms import envelope, mechanism_values
from parproof.evidence.exchange.forms.mechanism_values import Check

FORMAT = "mechanism-json"
SIX_KEYS = ("workload", "hardware", "metrics", "evidence_level", "failure", "decision")


@dataclass(frozen=True)
class Kind:
    """One runner.

    semantic_id  the experiment, whatever page number the runner writes
    asks         metric that the page asks for → names under which it could stand
    limits       what its measurement cannot show, whatever it measured
    """

    semantic_id: str
    asks: Mapping[str, tuple[str, ...]]
    check: Check
    limits: tuple[str, ...] = ()


_STEP = ("step_time_ms_per_rank", "rank_step_ms")
_MEMORY = ("peak_memory_mb_per_rank", "peak_memory_mb")
KINDS = {
    "zero_stage": Kind(
        "PAR-ZERO-STATE",
        {
            "state bytes": ("state_bytes_per_rank", "state_bytes"),
            "peak memory": _MEMORY,
            "communication bytes": ("communication_bytes_per_rank", "communication_bytes"),
            "step time": _STEP,
        },
        mechanism_values.training,
    ),
    "pipeline": Kind(
        "PAR-PIPELINE-SCHEDULE",
        {
            "bubble": ("bubble_ratio",),
            "activation peak": ("activation_peak", "peak_live_activations"),
            "stage time": ("stage_time_ms", "stage_time_ms_per_rank"),
            "throughput": ("tokens_per_s_proxy", "throughput"),
        },
        mechanism_values.training,
    ),
    "tp_mlp": Kind(
        "PAR-TENSOR-LAYOUT",
        {
            "numerical equality": ("max_abs_error",),
            "collective bytes": ("all_reduce_payload_bytes_per_rank",),
            "latency": _STEP,
            "memory": _MEMORY,
        },
        mechanism_values.tensor,
        ("logical-bytes",),
    ),
    "ep_dispatch": Kind(
        "PAR-EXPERT-DISPATCH",
        {
            "capacity": ("capacity", "capacity_per_expert"),
            "overflow": ("overflow", "overflow_tokens"),
            "all-to-all bytes": ("dispatch_bytes_per_rank",),
            "max/mean load": ("max_over_mean_load", "balance_ratio"),
        },
        mechanism_values.dispatch,
        ("logical-bytes",),
    ),
    "collective_matrix": Kind(
        "PAR-NCCL-COLLECTIVE",
        {
            "median/P95": ("median_ms", "p95_ms"),
            "effective bandwidth": ("effective_payload_gbps", "bus_GBps"),
            "time per rank": ("rank_elapsed_ms",),
        },
        mechanism_values.collectives,
        ("no-bus-factor", "logical-bytes"),
    ),
    "comm_overlap": Kind(
        "PAR-OVERLAP-HOTSPOT",
        {
            "communication time": ("total_comm_ms", "communication_ms"),
            "exposed communication": ("exposed_comm_ms",),
            "overlap ratio": ("overlap_ratio",),
            "rank imbalance": ("rank_imbalance_ratio",),
        },
        mechanism_values.overlap,
        ("synthetic-overlap",),
    ),
    "cp_attention": Kind(
        "PAR-CONTEXT-RING",
        {
            "correctness": ("max_abs_error",),
            "state bytes": ("local_kv_bytes_per_rank",),
            "exchange bytes": ("kv_exchange_bytes_per_rank",),
            "latency": ("exchange_compute_max_rank_ms",),
        },
        mechanism_values.context,
        ("all-gather-no-ring", "logical-bytes"),
    ),
    "replica_routing": Kind(
        "PAR-REPLICA-ROUTING",
        {
            "makespan": ("max_rank_makespan_ms",),
            "load per replica": ("request_cost_units_per_rank",),
            "queue wait": ("queue_wait_ms", "mean_queue_wait_ms", "p95_queue_wait_ms"),
        },
        mechanism_values.replicas,
        ("replica-gemm",),
    ),
    "moe_dispatch": Kind(
        "PAR-EXPERT-DISPATCH",
        {
            "capacity": ("capacity",),
            "overflow": ("overflow",),
            "all-to-all bytes": ("dispatch_and_combine_bytes_per_rank",),
            "max/mean load": ("load_imbalance_ratio",),
        },
        mechanism_values.moe,
        ("logical-bytes",),
    ),
    "smoke": Kind("", {}, mechanism_values.smoke),
}


def kind_of(document: dict[str, Any]) -> tuple[str, str] | None:
    """(kind, what gave it away), or None. The page number is no part of it: two have changed places."""
    if "schema_version" in document or not {"metrics", "workload", "evidence_level"} <= set(document):
        return None
    workload = mapping(document["workload"])
    mode, strategy = workload.get("mode"), word(document.get("strategy")) or ""
    level = word(document["evidence_level"]) or ""
    if isinstance(mode, str) and mode in KINDS:
        return mode, f"workload.mode {mode}"
    if document.get("role") == "gpu_smoke" or level == "real_multi_gpu_smoke":
        return "smoke", "role gpu_smoke, or level real_multi_gpu_smoke"
    for kind, starts, stamped in (
        ("moe_dispatch", "moe_dispatch_", "real_multi_gpu_synthetic_moe_dispatch"),
        ("pipeline", "deepspeed_pipeline", "real_multi_gpu_pipeline"),
        ("zero_stage", "", "real_multi_gpu_zero_stage"),
    ):
        synthetic = kind == "zero_stage" and workload.get("model") == "synthetic_transformer_mlp"
        if (starts and strategy.startswith(starts)) or level == stamped or synthetic:
            return kind, f"strategy {strategy or 'none'}, level {level or 'none'}"
    return None


def recognise(document: Any) -> Assessment | None:
    """A runner's JSON, or None."""
    found = kind_of(document) if isinstance(document, dict) else None
    if found is None:
        return None
    kind = KINDS[found[0]]
    told = Assessment(f"{FORMAT}/{found[0]}", found[1])
    envelope.claims(told, document)
    envelope.measured(told, document)
    told.give("identity", semantic_id=kind.semantic_id or None, strategy=word(document.get("strategy")))
    _check_form(told, document, kind)
    _check_values(told, document, kind)
    quantities.check(told, document)
    for limit in (*kind.limits, "synthetic-model", "mean-only", "hosts-not-told"):
        told.limited(limit, "metrics")
    told.close()
    return told


def _check_form(told: Assessment, document: dict[str, Any], kind: Kind) -> None:
    assessment.check_finite(told, document, "")
    assessment.check_contract(told, document)
    envelope.check_level(told, document)
    envelope.check_failure(told, document)
    envelope.check_decision(told)
    envelope.check_identity(told, document)
    if document.get("role") in ROLES.values():
        told.found("mechanism-as-project", "role", document["role"], f"{kind.semantic_id}, a mechanism")
    meaning = envelope.experiment_of(document.get("project"))
    if meaning is not None and meaning.kind == "project":
        found = f"{kind.semantic_id or 'a smoke run'}, a mechanism"
        told.found("mechanism-as-project", "project", f"{document['project']} ({meaning.id})", found)
    if str(document.get("project")).isdecimal():
        told.limited("page-number", "project", document["project"])
        told.give("identity", page=document["project"])


def _check_values(told: Assessment, document: dict[str, Any], kind: Kind) -> None:
    metrics, workload = mapping(document["metrics"]), mapping(document["workload"])
    size = envelope.world_size_of(document)
    told.give("hardware", world_size=size)
    rows = [mapping(row) for row in metrics["rows"]] if isinstance(metrics.get("rows"), list) else [metrics]
    names = {name for row in rows for name in row}
    missing = [asked for asked, under in kind.asks.items() if not names & set(under)]
    if missing and not document.get("failure"):
        told.found("metric-missing", "metrics", f"{len(names)} metrics", f"also {', '.join(missing)}")
    for place, row in enumerate(rows):
        where = f"metrics.rows[{place}]" if "rows" in metrics else "metrics"
        envelope.check_ranks(told, row, size, where)
        _check_slowest(told, row, where)
        kind.check(told, row, workload, size, where)
        told.values.append({name: value for name, value in row.items() if _plain(value)})
    _give_groups(told, rows, workload)
    if not {"max_abs_error"} & names:
        told.limited("correctness-not-judged", "metrics")
    elif told.measured:
        told.limited(
            "correctness-not-judged", "metrics.max_abs_error", "an error", "an error without a bound"
        )
    if (number(workload.get("warmup")) or 0) < 1:
        told.limited("no-warm-up", "workload.warmup")
    if (number(workload.get("repeats")) or 0) < 2:
        told.limited("no-repeats", "workload.repeats")


# (maximum, list of the ranks) as the runners name them.
_SLOWEST = (
    ("max_step_time_ms", "step_time_ms_per_rank"),
    ("max_peak_memory_mb", "peak_memory_mb_per_rank"),
    ("max_communication_ms", "communication_ms_per_rank"),
    ("max_rank_step_ms", "rank_step_ms"),
    ("max_rank_elapsed_ms", "rank_elapsed_ms"),
    ("max_rank_makespan_ms", "rank_elapsed_ms"),
    ("serial_max_rank_ms", "serial_rank_ms"),
    ("overlap_max_rank_ms", "overlap_rank_ms"),
    ("compute_only_max_rank_ms", "compute_only_rank_ms"),
    ("exchange_compute_max_rank_ms", "exchange_compute_rank_ms"),
)


def _check_slowest(told: Assessment, row: dict[str, Any], where: str) -> None:
    """An average must not hide the slowest rank."""
    for highest, of_ranks in _SLOWEST:
        told_max, ranks = number(row.get(highest)), numbers(row.get(of_ranks))
        if told_max is not None and ranks is not None and not close_to(told_max, max(ranks), absolute=1e-3):
            told.found(
                "slowest-rank", f"{where}.{highest}", told_max, f"{max(ranks)}, the slowest of {of_ranks}"
            )


def _give_groups(told: Assessment, rows: list[dict[str, Any]], workload: dict[str, Any]) -> None:
    """What of the public fields a runner's JSON holds: little."""
    first = rows[0] if rows else {}
    payload = next(
        (value for name, value in first.items() if "payload_bytes" in name or "dispatch" in name), None
    )
    per_rank = next((first[name] for name in first if numbers(first[name]) and "_ms" in name), None)
    told.give("communication", payload_bytes=payload if number(payload) is not None else None)
    told.give("communication", collective=word(first.get("operation")), backend=word(workload.get("backend")))
    told.give("load", per_rank=per_rank)
    if per_rank and sum(per_rank) > 0:
        told.give("load", max_over_mean=max(per_rank) * len(per_rank) / sum(per_rank))


def _plain(value: Any) -> bool:
    return number(value) is not None or numbers(value) is not None or word(value) is not None
