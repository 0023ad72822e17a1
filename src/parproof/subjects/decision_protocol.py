"""Interface of the mechanism `decision`: which parallel strategy to try next, and what would settle it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

# Pressures between 0 (none) and 1 (it decides everything); the order breaks ties.
SIGNALS = (
    "state_memory",
    "activation_memory",
    "communication",
    "pipeline_bubble",
    "load_imbalance",
    "long_context",
    "serving_queue",
)
PLANS = ("dp_zero", "pp", "tp", "ep", "cp", "replica")
RISK = {
    "dp_zero": "inspect_collective_frequency",
    "pp": "inspect_bubble_and_stage_balance",
    "tp": "inspect_all_reduce_exposure",
    "ep": "inspect_expert_load_and_all_to_all",
    "cp": "inspect_sequence_collective_exposure",
    "replica": "inspect_queue_balance_and_cache_locality",
}
MEASURE = {
    "dp_zero": ("peak_memory_mb", "collective_time_ms", "step_time_ms"),
    "pp": ("bubble_ratio", "stage_time_ms", "peak_memory_mb"),
    "tp": ("all_reduce_payload_mb", "exposed_comm_ms", "step_time_ms"),
    "ep": ("expert_token_cv", "all_to_all_time_ms", "p95_step_time_ms"),
    "cp": ("sequence_payload_mb", "exposed_comm_ms", "peak_memory_mb"),
    "replica": ("queue_wait_p95_ms", "cache_hit_rate", "throughput_requests_per_s"),
    "none": ("peak_memory_mb", "step_time_ms"),
}
SECONDARY_AT = 0.50


@dataclass(frozen=True)
class Constraints:
    """What the model and the machine allow."""

    model_fits_single_gpu: bool = False
    strong_interconnect: bool = False
    large_linear_layer: bool = False
    has_moe: bool = False
    long_context: bool = False
    serving_workload: bool = False


@dataclass(frozen=True)
class Situation:
    """Pressures by name, constraints, and the risks that sealed evidence has answered."""

    signals: Mapping[str, float]
    constraints: Constraints
    closed_risks: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Candidate:
    """A plan that applies and scores; its risk while it is open."""

    plan: str
    score: int
    open_risk: str | None


@dataclass(frozen=True)
class Advice:
    """What to do next.

    primary      strongest pressure, None when there is none; tied_signals: all that share the strongest
    secondary    other pressures of at least 0.50
    candidates   by score, then by the order of PLANS; tied_plans: those that share the best score, if several
    decision     accept: one best plan, its risk answered, no secondary pressure; tune: try it and measure;
                 collect_more_evidence: no plan applies, or nothing presses
    """

    primary: str | None
    severity: float
    tied_signals: tuple[str, ...]
    secondary: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    tied_plans: tuple[str, ...]
    decision: str
    measure: tuple[str, ...]


class Decision(Protocol):
    """What a subject implements."""

    def advise(self, situation: Situation) -> Advice:
        """Score the plans that apply and say what would settle the choice.

        Applies    tp with large linear layers; ep with experts; cp with long context; replica when serving a model
                   that fits one GPU; dp_zero when training; pp always
        Scores     dp_zero +3 primary state_memory. pp +3 primary activation_memory or the model does not fit,
                   −1 primary pipeline_bubble. tp +3 strong interconnect, −2 weak interconnect or communication
                   pressing (once). ep +3, +2 primary load_imbalance. cp +3, +2 primary long_context.
                   replica +3, +2 primary serving_queue. Only scores above 0 stay.
        Errors     InvalidPlan for an unknown, missing or non-finite signal, or one outside 0 … 1
        """
