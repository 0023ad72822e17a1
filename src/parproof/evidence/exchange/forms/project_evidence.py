"""`project-evidence/v1`: plans, manifests of artefacts, and run results of project adapters."""

from __future__ import annotations

from typing import Any

from parproof import registry
from parproof.evidence.exchange import assessment, quantities
from parproof.evidence.exchange.assessment import Assessment, leaves, mapping, number, word
from parproof.evidence.exchange.contract import LEVELS
from parproof.evidence.exchange.forms import envelope
from parproof.evidence.record import STATUSES

SCHEMA_VERSION = "project-evidence/v1"
_DECISIONS = ("accept", "tune", "reject", "pending")
_RESULT_FIELDS = (
    "semantic_id",
    "status",
    "workload",
    "hardware",
    "metrics",
    "evidence_level",
    "failure",
    "decision",
)


def recognise(document: Any) -> Assessment | None:
    """By its version."""
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        return None
    kind = document.get("record_type")
    told = Assessment(
        f"{SCHEMA_VERSION} ({kind if isinstance(kind, str) else 'unknown'})",
        f"schema_version {SCHEMA_VERSION}",
    )
    assessment.check_finite(told, document, "")
    semantic_id = word(document.get("semantic_id"))
    told.give("identity", semantic_id=semantic_id, run_label=word(document.get("experiment_id")))
    if semantic_id and registry.load().experiment(semantic_id) is None:
        told.limited("project-not-registered", "semantic_id", semantic_id)
    if kind == "run_result":
        _result(told, document)
    else:
        told.ceiling = LEVELS[0]
        told.limited("nothing-ran", "record_type", kind)
    _check_types(told, document)
    quantities.check(told, document)
    told.close()
    return told


# Field → type, beside those that a run result has a reason of its own for.
_TYPES: dict[str, type] = {
    **dict.fromkeys(("semantic_id", "experiment_id", "primary_owner", "artifact_id", "location"), str),
    **dict.fromkeys(("runtime", "metadata", "strategy_metrics", "quality", "baseline", "source"), dict),
    **dict.fromkeys(("artifacts", "candidates"), list),
}

_TYPE_NAMES: dict[type, str] = {str: "a word", dict: "a mapping", list: "a list"}


def _check_types(told: Assessment, document: dict[str, Any]) -> None:
    """Fields of every record type; null is silence."""
    for name, wanted in _TYPES.items():
        value = document.get(name)
        if value is not None and not isinstance(value, wanted):
            told.found("field-type", name, value, _TYPE_NAMES[wanted])
    for name in ("workload", "hardware", "metrics"):
        if name in document and not isinstance(document[name], dict):
            reason = "hardware-is-text" if name == "hardware" else "not-a-mapping"
            told.found(reason, name, document[name], "a mapping")


def _result(told: Assessment, document: dict[str, Any]) -> None:
    envelope.claims(told, document)
    envelope.measured(
        told, document | {"metrics": [document.get("metrics"), document.get("strategy_metrics")]}
    )
    if missing := [name for name in _RESULT_FIELDS if name not in document]:
        told.found("field-missing", "(top)", f"no {', '.join(missing)}", "all fields of a run result")
    if "decision" in document and not isinstance(document["decision"], dict):
        told.found("decision-is-text", "decision", document["decision"], "a mapping")
    told.give("hardware", world_size=envelope.world_size_of(document))
    workload = mapping(document.get("workload"))
    told.give("identity", workload_id=word(workload.get("workload_id")))
    envelope.check_level(told, document)
    envelope.check_failure(told, document)
    envelope.check_correctness(told, document)
    envelope.check_gpu_words(told, document)
    _check_status(told, document)
    _check_decision(told, document)
    told.limited("hosts-not-told", "hardware")


def _check_status(told: Assessment, document: dict[str, Any]) -> None:
    """Status, failure and metrics tell one story."""
    status, failure = document.get("status"), document.get("failure")
    if status not in STATUSES:
        told.found("status-form", "status", status, f"one of {', '.join(STATUSES)}")
    elif status in ("failed", "blocked") and not failure:
        told.found("status-form", "failure", f"{status} without a failure", "what failed")
    elif status == "ok" and failure:
        told.found("status-form", "status", "ok with a failure", "failed, or no failure")
    elif status in ("skipped", "blocked") and any(
        number(leaf) is not None for _, leaf in leaves(document.get("metrics"))
    ):
        told.found("status-form", "metrics", f"figures of a run that is {status}", "none: nothing ran")
    elif status == "ok" and not document.get("metrics"):
        told.found("empty-mapping", "metrics", "{}", "the metrics of the run")


def _check_decision(told: Assessment, document: dict[str, Any]) -> None:
    decision = told.claims["decision"]
    if decision not in _DECISIONS:
        told.found("decision-unknown", "decision.status", decision, f"one of {', '.join(_DECISIONS)}")
    if decision == "accept":
        told.found(
            "decision-needs-comparison", "decision.status", decision, "pending: one file is no comparison"
        )
