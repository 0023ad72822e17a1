"""A record: one test outcome in the six public field groups, the observation, and what follows from it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from parproof import registry
from parproof.evidence import canonical, ledger_summary, wire_model
from parproof.evidence.level import compute_level, compute_scope, may_claim_performance
from parproof.evidence.reasons import why_null
from parproof.ledger.rows import Row

SCHEMA = "parproof-record/v1"
STATUSES = ("ok", "failed", "blocked", "skipped")
DECISIONS = ("accept", "tune", "reject", "pending")
PENDING = "a decision needs a comparison of two runs; one record is none"


FIGURES = {
    "compute_s": "time",
    "communication_s": "time",
    "exposed_s": "time",
    "per_rank": "load",
    "max_over_mean": "load",
    "overflow": "load",
    "idle_ratio": "load",
    "wire_bytes": "communication",
    "sync_frequency": "communication",
    "fallback": "conclusion",
}


@dataclass(frozen=True)
class Outcome:
    """What is known of a test when it has ended; the plugin fills it in, nothing here is computed.

    status   ok: it passed; failed: it judged and found a fault; blocked: it could not judge (set-up, crash);
             skipped: a need was not met
    ran      False when the test's body was never reached: nothing was observed then
    runs     (observation, ledgers of all ranks) of each run of a rank program that ended well
    failed_runs  placement, and rank → kind of problem, of each run that did not
    figures  group → name → value, for public fields that only a test can fill in: see FIGURES
    traces   sha256 of each trace that was kept beside the records
    times    name, samples_s[rank][repeat], warmup
    predicted  rank, and the lines that the cost model gives for it in the last run
    accelerator     what the GPUs of its ranks are called
    started, ended  UTC, in the process that ran the test; None when it died before it could tell
    worker   which process of the run that was: «main», or the name of the xdist worker
    """

    nodeid: str
    status: str
    duration_s: float
    experiment: str | None = None
    claims: tuple[str, ...] = ()
    lane: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    subject: Mapping[str, str] | None = None
    workload_id: str | None = None
    workload: Mapping[str, Any] = field(default_factory=dict)
    measurements: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ran: bool = True
    runs: Sequence[tuple[Mapping[str, Any], Sequence[Sequence[Row]]]] = ()
    failed_runs: Sequence[Mapping[str, Any]] = ()
    predicted: Mapping[str, Any] | None = None
    times: Sequence[Mapping[str, Any]] = ()
    failure: Mapping[str, Any] | None = None
    skip: Mapping[str, str] | None = None
    expected_nonconformance: str | None = None
    model: str | None = None
    traces: Sequence[str] = ()
    accelerator: str | None = None
    started: str | None = None
    ended: str | None = None
    worker: str = "main"


def build(outcome: Outcome, text: Callable[[str], str] = str) -> dict[str, Any]:
    """The record, without its place in a run (number, run id, previous hash, provenance): the store adds those.

    text   applied to every string: takes the machine's places out
    """
    observation = _observation(outcome)
    level, why = compute_level(observation)
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "identity": _identity(outcome),
        "topology": _topology(outcome, observation),
        "communication": _communication(outcome, observation),
        "time": _time(outcome),
        "load": {"per_rank": None, "max_over_mean": None, "overflow": None, "idle_ratio": None},
        "conclusion": _conclusion(outcome, level, why, compute_scope(observation)),
        "measurements": dict(outcome.measurements),
        "observation": observation,
        "provenance": {"worker": outcome.worker},
    }
    for group, values in outcome.figures.items():
        record[group] |= values
    record["not_collected"] = why_null(record)
    found: dict[str, Any] = canonical.plain(record, outcome.nodeid, text)
    return found


def _observation(outcome: Outcome) -> dict[str, Any] | None:
    if outcome.status == "skipped" or not outcome.ran:
        return None
    return {
        "runs": [_run_facts(facts) for facts, _ in outcome.runs],
        "failed_runs": [_placement(facts) | {"problems": facts["problems"]} for facts in outcome.failed_runs],
        "workload_id": outcome.workload_id,
        "warmup": min((t["warmup"] for t in outcome.times), default=None),
        "repeats": min((len(s) for t in outcome.times for s in t["samples_s"]), default=None),
        "model": outcome.model,
        "traces": list(outcome.traces),
    }


_PLACEMENT = ("launcher", "backend", "world_size", "host_kind")
_RUN_FACTS = ("num_reports", "calls_seen", "ledger", "ledger_complete")
_RANK_FACTS = ("rank", "local_rank", "pid", "host", "hostname", "device")


def _placement(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Who the ranks were and where: `host` by the pool's count, `hostname` as the host itself says."""
    ranks = [{name: rank[name] for name in _RANK_FACTS} for rank in facts["ranks"]]
    return {name: facts[name] for name in _PLACEMENT} | {"ranks": ranks}


def _run_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a level may be computed from, and no more."""
    return _placement(facts) | {name: facts.get(name) for name in _RUN_FACTS}


def _identity(outcome: Outcome) -> dict[str, Any]:
    known = registry.load().experiment(outcome.experiment) if outcome.experiment else None
    found = [known.claim(claim) for claim in outcome.claims] if known else []
    return {
        "nodeid": outcome.nodeid,
        "semantic_id": outcome.experiment,
        "claims": list(outcome.claims),
        "tiers": sorted({claim.tier for claim in found if claim}),
        "page": page_of(outcome.experiment),
        "strategy": strategy_of(outcome.workload, outcome.parameters),
        "lane": outcome.lane,
        "subject": dict(outcome.subject) if outcome.subject else None,
        "parameters": dict(outcome.parameters),
        "workload_id": outcome.workload_id,
        "workload": dict(outcome.workload),
    }


def page_of(experiment: str | None) -> str | None:
    """Its page numbers, each with the revision in which it means this experiment."""
    known = registry.load().experiment(experiment) if experiment else None
    return ", ".join(f"{page} ({revision})" for page, revision in known.aliases) if known else None


def strategy_of(workload: Mapping[str, Any], parameters: Mapping[str, Any]) -> str | None:
    """The strategy that a workload names, else the test's parameters."""
    for told in (workload, parameters):
        if isinstance(told.get("strategy"), str):
            return str(told["strategy"])
    return None


def _topology(outcome: Outcome, observation: dict[str, Any] | None) -> dict[str, Any]:
    largest = largest_run(observation)
    return {
        "scope": compute_scope(observation),
        "world_size": largest["world_size"] if largest else None,
        "ranks": largest["ranks"] if largest else None,
        "accelerator": outcome.accelerator,
        "links": None,
    }


def largest_run(observation: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The run with most ranks, the first of several; one that failed had its ranks too."""
    seen = observation or {"runs": (), "failed_runs": ()}
    return max([*seen["runs"], *seen["failed_runs"]], key=lambda run: run["world_size"], default=None)


def last_run(observation: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The last run that ended well, else the last that did not."""
    seen = observation or {"runs": (), "failed_runs": ()}
    return next((runs[-1] for runs in (seen["runs"], seen["failed_runs"]) if runs), None)


def _communication(outcome: Outcome, observation: Mapping[str, Any] | None) -> dict[str, Any]:
    """Logical payload and wire bytes are two columns; a prediction stands beside the ledger, never in it.

    Of a test that was skipped nothing was observed, also where its ranks had run before.
    """
    runs = outcome.runs if observation else []
    last = runs[-1] if runs else None
    seen = last_run(observation)
    return {
        "backend": seen["backend"] if seen else None,
        "launcher": seen["launcher"] if seen else None,
        "num_runs": len(runs),
        "ledger": ledger_summary.summarize(last[1]) if last else None,
        "ledger_complete": last[0].get("ledger_complete") if last else None,
        "predicted": dict(outcome.predicted) if outcome.predicted else None,
        "wire_bytes": None,
        "wire_model": wire_model.sent_bytes(seen["backend"], last[1]) if seen and last else None,
        "sync_frequency": None,
    }


def _time(outcome: Outcome) -> dict[str, Any]:
    """Per-call maximum over ranks, then median and P95 (nearest rank); raw samples are kept."""
    measured = []
    for entry in outcome.times:
        slowest = sorted(max(samples) for samples in zip(*entry["samples_s"], strict=True))
        measured.append(
            {
                "name": entry["name"],
                "warmup": entry["warmup"],
                "repeats": len(slowest),
                "median_s": statistics.median(slowest),
                "p95_s": slowest[-(-95 * len(slowest) // 100) - 1],
                "samples_s": [list(samples) for samples in entry["samples_s"]],
            }
        )
    return {
        "started": outcome.started,
        "ended": outcome.ended,
        "test_s": outcome.duration_s,
        "measured": measured or None,
        "compute_s": None,
        "communication_s": None,
        "exposed_s": None,
    }


def _conclusion(outcome: Outcome, level: str | None, why: str, scope: str | None) -> dict[str, Any]:
    return {
        "status": outcome.status,
        "correctness": {"ok": "pass", "failed": "fail"}.get(outcome.status, "not_evaluated"),
        "failure": dict(outcome.failure) if outcome.failure else None,
        "skip": dict(outcome.skip) if outcome.skip else None,
        "expected_nonconformance": outcome.expected_nonconformance,
        "fallback": None,
        "evidence_level": level,
        "level_reason": why,
        "decision": "pending",
        "decision_reason": PENDING,
        "not_shown": not_shown(outcome.experiment, level, scope),
    }


def not_shown(experiment: str | None, level: str | None, scope: str | None) -> list[str]:
    """What cannot be concluded from a record of this experiment, level and scope."""
    known = registry.load().experiment(experiment) if experiment else None
    limits = [known.not_shown] if known else []
    if not may_claim_performance(level):
        limits.append("performance: nothing about speed, memory or scaling of GPUs follows from this record")
    else:
        limits.append("other models, workloads, configurations, machines and versions")
    if level == "profiler_trace":
        limits.append("a verdict on the strategy: that takes a second run of equal workload")
    if scope != "multi_host":
        limits.append("cross-node behaviour")
    return limits or ["other workloads, machines and versions"]
