"""The decision page as a table: names, risks and measurements as printed, points as rows; evaluated, not programmed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

# Copied from the page and not from the protocol: a slip there must not move what is expected of a planner.
SIGNALS = (
    "state_memory",
    "activation_memory",
    "communication",
    "pipeline_bubble",
    "load_imbalance",
    "long_context",
    "serving_queue",
)
# plan, its risk, what to measure; equal scores keep the order of these rows
_PAGE = (
    ("dp_zero", "inspect_collective_frequency", "peak_memory_mb collective_time_ms step_time_ms"),
    ("pp", "inspect_bubble_and_stage_balance", "bubble_ratio stage_time_ms peak_memory_mb"),
    ("tp", "inspect_all_reduce_exposure", "all_reduce_payload_mb exposed_comm_ms step_time_ms"),
    ("ep", "inspect_expert_load_and_all_to_all", "expert_token_cv all_to_all_time_ms p95_step_time_ms"),
    ("cp", "inspect_sequence_collective_exposure", "sequence_payload_mb exposed_comm_ms peak_memory_mb"),
    (
        "replica",
        "inspect_queue_balance_and_cache_locality",
        "queue_wait_p95_ms cache_hit_rate throughput_requests_per_s",
    ),
)
PLANS = tuple(plan for plan, _, _ in _PAGE)
RISK = {plan: risk for plan, risk, _ in _PAGE}
MEASUREMENTS = {plan: frozenset(names.split()) for plan, _, names in _PAGE}
WITHOUT_A_PLAN = frozenset({"peak_memory_mb", "step_time_ms"})
# plan, what must hold for it to apply
APPLIES = {
    "dp_zero": "not serving",
    "pp": "True",
    "tp": "linear",
    "ep": "moe",
    "cp": "context",
    "replica": "serving and fits",
}
# plan, points, when
POINTS = (
    ("dp_zero", 3, "primary == 'state_memory'"),
    ("pp", 3, "primary == 'activation_memory' or not fits"),
    ("pp", -1, "primary == 'pipeline_bubble'"),
    ("tp", 3, "strong"),
    ("tp", -2, "primary == 'communication' or 'communication' in secondary or not strong"),
    ("ep", 3, "True"),
    ("ep", 2, "primary == 'load_imbalance'"),
    ("cp", 3, "True"),
    ("cp", 2, "primary == 'long_context'"),
    ("replica", 3, "True"),
    ("replica", 2, "primary == 'serving_queue'"),
)


def scores(primary: str | None, secondary: tuple[str, ...], limits: Any) -> dict[str, int]:
    """Points above zero of every plan that applies."""
    facts = {
        "primary": primary,
        "secondary": secondary,
        "fits": limits.model_fits_single_gpu,
        "strong": limits.strong_interconnect,
        "linear": limits.large_linear_layer,
        "moe": limits.has_moe,
        "context": limits.long_context,
        "serving": limits.serving_workload,
    }
    total = {plan: 0 for plan, when in APPLIES.items() if eval(when, {}, facts)}
    for plan, points, when in POINTS:
        if plan in total and eval(when, {}, facts):
            total[plan] += points
    return {plan: points for plan, points in total.items() if points > 0}


def ranking(found: dict[str, int]) -> list[str]:
    """Plans by score, equal ones in the order of the page."""
    return sorted(found, key=lambda plan: (-found[plan], PLANS.index(plan)))


def open_risks(found: dict[str, int], closed: Collection[str]) -> dict[str, str | None]:
    """Of each plan its risk, or None once that has been answered."""
    return {plan: None if RISK[plan] in closed else RISK[plan] for plan in found}


def measurements(found: dict[str, int]) -> frozenset[str]:
    """What tells the best plans apart; without a plan the two that any plan needs."""
    best = [plan for plan, points in found.items() if points == max(found.values())]
    return frozenset().union(*(MEASUREMENTS[plan] for plan in best)) if best else WITHOUT_A_PLAN


def verdict(
    found: dict[str, int], primary: str | None, secondary: tuple[str, ...], closed: Collection[str]
) -> str:
    """`closed`: risks that have been answered."""
    if primary is None or not found:
        return "collect_more_evidence"
    best = [plan for plan, points in found.items() if points == max(found.values())]
    return "accept" if len(best) == 1 and not secondary and RISK[best[0]] in closed else "tune"
