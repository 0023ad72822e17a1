"""Documents of `distributed-benchmark/v1`: what a project's own record shows, or that its mechanisms are only cited.

A mechanism's record is no project's result. So a document with a project's role is one of two things:

result     one record of the project itself, field by field; nothing is added up, so nothing can grow by it
citation   the project did not run: failure `not_run`, level `theoretical`, every figure null, and the mechanisms'
           evidence named with its counts, levels and claims

Neither decides anything: a decision needs a comparison.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from parproof import registry
from parproof.evidence import consume
from parproof.evidence.exchange.contract import PAGE_FIELDS, PAGE_METRICS, ROLES, SCHEMA_VERSION
from parproof.evidence.level import FIVE_LEVELS
from parproof.evidence.record import STATUSES, page_of

Document = dict[str, Any]

NOT_RUN = "the project was not run"
_COMMUNICATION = (
    "backend",
    "launcher",
    "num_runs",
    "ledger",
    "ledger_complete",
    "predicted",
    "wire_bytes",
    "wire_model",
    "sync_frequency",
)
_TIME = ("measured", "compute_s", "communication_s", "exposed_s")
_LOAD = ("per_rank", "max_over_mean", "overflow", "idle_ratio")
_HARDWARE = ("scope", "world_size", "ranks", "accelerator", "links")
_WORKLOAD = ("workload_id", "workload", "strategy", "lane", "subject", "nodeid", "claims", "parameters")
_CONCLUSION = ("correctness", "fallback", "expected_nonconformance")
# Where a record's group has its place in the envelope.
_PLACES = {
    "identity": "workload",
    "topology": "hardware",
    "communication": "metrics.communication",
    "time": "metrics.time",
    "load": "metrics.load",
    "conclusion": "artifacts.conclusion",
}


def citation(
    project: str,
    manifest: Mapping[str, Any],
    cited: Mapping[str, list[Mapping[str, Any]]],
    not_exported: list[Any],
) -> Document:
    """A project that did not run, with what its mechanisms show named beside it.

    cited         producer → its records (identity and conclusion are enough)
    not_exported  records of the project itself that ran nothing, and attempts for which a worse one stands
    """
    known = registry.load().experiment(project)
    assert known is not None
    document = _envelope(project, manifest)
    document["workload"] |= dict.fromkeys(_WORKLOAD)
    document["hardware"] = dict.fromkeys(_HARDWARE)
    document["metrics"] |= {
        "kind": "citation",
        "communication": dict.fromkeys(_COMMUNICATION),
        "time": dict.fromkeys(_TIME),
        "load": dict.fromkeys(_LOAD),
        "measurements": {},
        "cites": [_cite(edge, cited.get(edge.producer, [])) for edge in consume.judge(project, cited)],
    }
    document["evidence_level"] = "theoretical"
    document["failure"] = {
        "kind": "not_run",
        "reason": f"{NOT_RUN}; evidence of its mechanisms is cited, no more",
    }
    document["artifacts"]["conclusion"] = {
        "correctness": "not_evaluated",
        "fallback": None,
        "expected_nonconformance": None,
        "level_reason": "mechanisms give a project a direction; nothing of the project itself was observed",
        "not_shown": [f"anything measured of {project}", known.not_shown],
    }
    document["artifacts"]["not_exported"] = not_exported
    return _with_reasons(document, {})


def result(project: str, manifest: Mapping[str, Any], record: Mapping[str, Any]) -> Document:
    """One record of the project itself. It has run, so it has a level."""
    end, identity = record["conclusion"], record["identity"]
    document = _envelope(project, manifest)
    document["workload"] |= {name: identity[name] for name in _WORKLOAD}
    document["hardware"] = {name: record["topology"][name] for name in _HARDWARE}
    document["strategy"] = identity["strategy"]
    if "backend" in document:
        document["backend"] = record["communication"]["backend"]
    time = {name: record["time"][name] for name in _TIME}
    document["metrics"] |= {
        "kind": "result",
        "communication": {name: record["communication"][name] for name in _COMMUNICATION},
        # What is not right has no speed.
        "time": time if end["status"] == "ok" else dict.fromkeys(_TIME),
        "load": {name: record["load"][name] for name in _LOAD},
        "measurements": record["measurements"],
        "cites": [],
    }
    for name in PAGE_METRICS.get(document["role"], ()):
        document["metrics"][name] = record["measurements"].get(name) if end["status"] == "ok" else None
    document["evidence_level"] = FIVE_LEVELS[end["evidence_level"]]
    document["failure"] = None if end["status"] == "ok" else _failure(end)
    document["artifacts"]["conclusion"] = {name: end[name] for name in _CONCLUSION} | {
        "level_reason": f"{end['evidence_level']}: {end['level_reason']}",
        "not_shown": end["not_shown"],
    }
    document["artifacts"]["record"] = {"sequence": record["sequence"], "previous": record["previous"]}
    document["artifacts"]["traces"] = record["observation"]["traces"]
    reasons = {
        f"{_PLACES[group]}.{name}": why
        for group, _, name, why in (
            (*place.partition("."), why) for place, why in record["not_collected"].items()
        )
    }
    return _with_reasons(document, reasons)


def cite(record: Mapping[str, Any]) -> dict[str, Any]:
    """As much of a record as a citation needs."""
    identity, end = record["identity"], record["conclusion"]
    return {
        "identity": {name: identity[name] for name in ("nodeid", "claims", "workload_id", "workload")},
        "conclusion": {name: end[name] for name in ("status", "evidence_level", "expected_nonconformance")},
    }


def _envelope(project: str, manifest: Mapping[str, Any]) -> Document:
    role = ROLES[project]
    document: Document = {
        "schema_version": SCHEMA_VERSION,
        "project": project,
        "role": role,
        "workload": {"semantic_id": project, "page": page_of(project), "run_label": manifest["run_label"]},
        "metrics": dict.fromkeys(PAGE_METRICS.get(role, ())),
        "decision": {
            "decision": "not_evaluated",
            "status": "pending",
            "reason": "a decision needs a comparison of two runs of equal workload and hardware",
            "next_action": "run the project and its baseline on one fixed workload, then compare the two",
        },
        "artifacts": {
            "evidence": {
                "run_id": manifest["run_id"],
                "digest": manifest["digest"],
                "commit": manifest["source"]["commit"],
                "dirty": manifest["source"]["dirty"],
                "fingerprint": manifest["source"]["fingerprint"],
            },
            "record": None,
            "traces": [],
            "not_exported": [],
        },
    }
    return document | dict.fromkeys(PAGE_FIELDS[role])


def _failure(end: Mapping[str, Any]) -> dict[str, Any]:
    told = end["failure"] or {}
    found = {name: told.get(name) for name in ("type", "message", "rank") if told.get(name) is not None}
    return {"kind": end["status"], "reason": str(told.get("message") or end["status"]), **found}


def _cite(edge: consume.Consumption, records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts, levels and claims of one producer: what they are, not what they would mean for the project."""
    ends = [(record["identity"]["claims"], record["conclusion"]) for record in records]
    statuses = Counter(end["status"] for _, end in ends)
    levels = Counter(FIVE_LEVELS[end["evidence_level"]] for _, end in ends if end["evidence_level"])
    known = registry.load().experiment(edge.producer)
    failed = {claim for claims, end in ends if end["status"] in ("failed", "blocked") for claim in claims}
    passed = {claim for claims, end in ends if end["status"] == "ok" for claim in claims}
    return {
        "producer": edge.producer,
        "role": edge.role,
        "num_records": {status: statuses[status] for status in STATUSES},
        "evidence_levels": dict(sorted(levels.items())),
        "claims": {claim.id: _shown(claim.id, passed, failed) for claim in (known.claims if known else ())},
        "known_defects": sorted(
            {e["expected_nonconformance"] for _, e in ends if e["expected_nonconformance"]}
        ),
        "answers_a_risk": edge.usable,
        "reason": edge.reason,
    }


def _shown(claim: str, passed: set[str], failed: set[str]) -> str:
    if claim in failed:
        return "failed by some" if claim in passed else "failed"
    return "passed" if claim in passed else "not shown"


def _with_reasons(document: Document, reasons: Mapping[str, str]) -> Document:
    """Why each null of it is null. Sources come last: they bind what is above."""
    default = NOT_RUN if document["metrics"]["kind"] == "citation" else "not collected by this record"
    found = {place: reasons.get(place, default) for place in _nulls(document, ())}
    if "failure" in found:
        found["failure"] = "no failure"
    document["artifacts"]["not_collected"] = found
    return document


# Values of the record itself, in which null is part of a value.
_WHOLE = (
    "metrics.measurements",
    "metrics.communication.ledger",
    "metrics.communication.predicted",
    "metrics.time.measured",
    "metrics.load.per_rank",
    "workload.workload",
    "hardware.ranks",
)


def _nulls(value: Any, path: tuple[str, ...]) -> Iterable[str]:
    place = ".".join(path)
    if value is None:
        yield place
    elif isinstance(value, dict) and place not in _WHOLE:
        for name in sorted(value):
            yield from _nulls(value[name], (*path, name))
