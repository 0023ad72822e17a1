"""The decision page as a table: points as rows, conditions as words; evaluated, not programmed."""

from __future__ import annotations

from typing import Any

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


def verdict(
    found: dict[str, int], primary: str | None, secondary: tuple[str, ...], answered: set[str]
) -> str:
    """`answered`: plans whose risk has been answered."""
    if primary is None or not found:
        return "collect_more_evidence"
    best = [plan for plan, points in found.items() if points == max(found.values())]
    return "accept" if len(best) == 1 and not secondary and best[0] in answered else "tune"
