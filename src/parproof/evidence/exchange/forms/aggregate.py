"""Output of an aggregator: one envelope over records of mechanisms, which it embeds."""

from __future__ import annotations

from typing import Any

from parproof.evidence import canonical
from parproof.evidence.exchange.assessment import Assessment, mapping, number, safe
from parproof.evidence.exchange.contract import LEVELS, SCHEMA_VERSION
from parproof.evidence.exchange.forms import mechanism, v1

FORMAT = f"{SCHEMA_VERSION} (aggregate)"
_READY = ("ready_for_review", "accept")


def recognise(document: Any) -> Assessment | None:
    """The level that only the aggregator writes, or its count of sources."""
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        return None
    if document.get("evidence_level") == "aggregated_mechanism_evidence":
        by = "evidence_level aggregated_mechanism_evidence"
    elif "source_count" in mapping(document.get("metrics")):
        by = "metrics.source_count"
    else:
        return None
    told = Assessment(FORMAT, by)
    v1.read_envelope(told, document)
    # A count of files is no measurement.
    told.measured, told.ceiling = False, LEVELS[0]
    sources = document.get("sources")
    parts = [mapping(source) for source in sources] if isinstance(sources, list) else []
    _check_count(told, document, parts)
    _check_parts(told, document, parts)
    if "strategy" not in document:
        told.limited("strategy-missing", "strategy")
    told.close()
    return told


def _check_count(told: Assessment, document: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    told_count = number(mapping(document.get("metrics")).get("source_count"))
    if told_count is not None and told_count != len(parts):
        told.found("source-count", "metrics.source_count", told_count, f"{len(parts)} sources")
    contents = [canonical.digest(_content(part)) for part in parts]
    for place, content in enumerate(contents):
        if content in contents[:place] and not any(
            r.where == f"sources[{place}]" and r.id == "source-twice" for r in told.findings
        ):
            told.found(
                "source-twice", f"sources[{place}]", parts[place].get("path"), "equal contents count once"
            )


def _content(part: dict[str, Any]) -> Any:
    """What a source says, whatever it is called."""
    return safe({name: value for name, value in part.items() if name != "path"})


def _check_parts(told: Assessment, document: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    """No sum is more than its weakest part."""
    ready = told.claims["decision"] in _READY
    for place, part in enumerate(parts):
        where, level = f"sources[{place}]", part.get("evidence_level")
        found = mechanism.recognise({name: value for name, value in part.items() if name != "path"})
        if found is not None:
            told.found(
                "mechanism-as-project",
                where,
                document.get("role"),
                f"{found.format}, no result of the project",
            )
        reasons = {reason.id for reason in found.findings} if found else set()
        weak = "smoke" in str(level) or str(level) in LEVELS[:3] or part.get("failure")
        if ready and (weak or "level-before-run" in reasons or "nothing-measured" in reasons):
            told.found(
                "smoke-promoted",
                where,
                f"{level} in a {told.claims['decision']}",
                "a review of what it is: smoke",
            )
    for name in ("workload", "hardware"):
        kinds = {canonical.dumps(safe(_comparable(part.get(name)))) for part in parts}
        if len(kinds) > 1:
            told.found(
                "sources-unequal", name, f"{len(kinds)} different", f"one {name} for what is put together"
            )


# A run's own output file and the strategy under comparison may differ; nothing else of a workload may.
_MAY_DIFFER = ("output", "strategy", "run_label")


def _comparable(value: Any) -> Any:
    return {k: v for k, v in value.items() if k not in _MAY_DIFFER} if isinstance(value, dict) else value
