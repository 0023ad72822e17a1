"""Rules about one record: what it says of itself must follow from what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parproof import registry
from parproof.evidence import level
from parproof.evidence.audit.findings import Pair, record_rule
from parproof.evidence.reasons import PUBLIC_GROUPS
from parproof.evidence.record import PENDING, not_shown, page_of

_CUDA_LANES = ("cuda1", "cuda2")


@record_rule("level-computed", "The evidence level is the one that follows from the observation.")
def level_computed(record: dict[str, Any]) -> Iterator[Pair]:
    """A level that was typed in says more, or less, than was seen."""
    computed, why = level.compute_level(record["observation"])
    claimed, reason = record["conclusion"]["evidence_level"], record["conclusion"]["level_reason"]
    if (claimed, reason) != (computed, why):
        yield f"{claimed}: {reason}", f"{computed}: {why}"


@record_rule("scope-computed", "The scope is the one that follows from where the ranks were seen.")
def scope_computed(record: dict[str, Any]) -> Iterator[Pair]:
    """Two hosts that were emulated on one, or one host, are not many."""
    computed = level.compute_scope(record["observation"])
    if record["topology"]["scope"] != computed:
        yield str(record["topology"]["scope"]), str(computed)


@record_rule("lane-observed", "A record of a lane was made with what the lane is about.")
def lane_observed(record: dict[str, Any]) -> Iterator[Pair]:
    """A GPU lane with ranks on CPU, or a cross-node lane on one host, is another lane's evidence."""
    lane, observation = record["identity"]["lane"], record["observation"]
    runs = [*observation["runs"], *observation["failed_runs"]] if observation else []
    if not runs or record["conclusion"]["status"] == "blocked":
        return
    devices = {str(rank["device"]).split(":")[0] for run in runs for rank in run["ranks"]}
    if lane == "cpu" and devices != {"cpu"}:
        yield "lane cpu", f"ranks on {', '.join(sorted(devices))}"
    if lane in _CUDA_LANES and devices != {"cuda"}:
        yield f"lane {lane}", f"ranks on {', '.join(sorted(devices))}"
    if lane == "cross_node" and level.compute_scope(observation) != "multi_host":
        yield "lane cross_node", f"scope {level.compute_scope(observation)}"


@record_rule("ranks-reported", "Every rank of a run that counts has reported, each once.")
def ranks_reported(record: dict[str, Any]) -> Iterator[Pair]:
    """A silent rank makes a run a failure, whatever the others said."""
    for run in (record["observation"] or {"runs": []})["runs"]:
        numbers = sorted(rank["rank"] for rank in run["ranks"])
        all_there = len(numbers) == run["world_size"] and numbers == list(range(len(numbers)))
        if run["num_reports"] != run["world_size"] or not all_there:
            yield f"world size {run['world_size']}", f"{run['num_reports']} reports, ranks {numbers}"


@record_rule("status-consistent", "Status, correctness, failure and skip tell one story.")
def status_consistent(record: dict[str, Any]) -> Iterator[Pair]:
    """ok has no failure; failed and blocked have one; skipped says why, and saw nothing."""
    end = record["conclusion"]
    status = end["status"]
    correctness = {"ok": "pass", "failed": "fail"}.get(status, "not_evaluated")
    if end["correctness"] != correctness:
        yield f"correctness {end['correctness']}", f"{correctness} for status {status}"
    if (end["failure"] is not None) != (status in ("failed", "blocked")):
        yield f"status {status}", "a failure" if end["failure"] else "no failure"
    if (end["skip"] is not None) != (status == "skipped"):
        yield f"status {status}", "a skip reason" if end["skip"] else "no skip reason"
    unseen = record["observation"] is None
    if (unseen and status in ("ok", "failed")) or (not unseen and status == "skipped"):
        yield f"status {status}", "no observation" if unseen else "an observation"


@record_rule(
    "nonconformance-is-a-finding",
    "An expected nonconformance is a fault that was found: failed, with its report.",
)
def nonconformance_is_a_finding(record: dict[str, Any]) -> Iterator[Pair]:
    """A known defect must not be counted as passed or skipped."""
    end = record["conclusion"]
    if end["expected_nonconformance"] is not None and end["status"] != "failed":
        yield f"status {end['status']}", f"failed, expected by {end['expected_nonconformance']}"


@record_rule("null-has-reason", "What was not collected is null with a reason, and only that.")
def null_has_reason(record: dict[str, Any]) -> Iterator[Pair]:
    """An absent figure without a reason could be a figure somebody did not like."""
    empty = {f"{g}.{name}" for g in PUBLIC_GROUPS for name, value in record[g].items() if value is None}
    given = set(record["not_collected"])
    for name in sorted(empty - given):
        yield f"{name} null", "no reason for it"
    for name in sorted(given - empty):
        yield f"{name} not collected", "a value"


@record_rule("decision-needs-comparison", "One record decides nothing: its decision is pending.")
def decision_needs_comparison(record: dict[str, Any]) -> Iterator[Pair]:
    """accept, tune and reject come from comparing two runs of equal workload and hardware."""
    claimed = record["conclusion"]["decision"], record["conclusion"]["decision_reason"]
    if claimed != ("pending", PENDING):
        yield f"decision {claimed[0]}: {claimed[1]}", f"pending: {PENDING}"


@record_rule(
    "limits-stated", "What a record does not show is said in it, at least as much as follows from its level."
)
def limits_stated(record: dict[str, Any]) -> Iterator[Pair]:
    """CPU timing without this line would pass for performance, one host for many."""
    needed = not_shown(
        record["identity"]["semantic_id"], record["conclusion"]["evidence_level"], record["topology"]["scope"]
    )
    for line in needed:
        if line not in record["conclusion"]["not_shown"]:
            yield "no limit", f"not shown: {line}"


@record_rule("claims-registered", "Experiment, claims and tiers are those of the registry.")
def claims_registered(record: dict[str, Any]) -> Iterator[Pair]:
    """A claim nobody registered has no statement; a tier follows from the claim."""
    identity = record["identity"]
    if identity["semantic_id"] is None:
        if identity["claims"]:
            yield f"claims {identity['claims']}", "no experiment"
        return
    experiment = registry.load().experiment(identity["semantic_id"])
    if experiment is None:
        yield f"experiment {identity['semantic_id']}", "not registered"
        return
    found = [experiment.claim(claim) for claim in identity["claims"]]
    unknown = [name for name, claim in zip(identity["claims"], found, strict=True) if claim is None]
    if unknown:
        yield f"claims {unknown}", f"{experiment.id} has no such claims"
    tiers = sorted({claim.tier for claim in found if claim})
    if identity["tiers"] != tiers:
        yield f"tiers {identity['tiers']}", str(tiers)
    if identity["page"] != page_of(experiment.id):
        yield f"page {identity['page']}", str(page_of(experiment.id))
