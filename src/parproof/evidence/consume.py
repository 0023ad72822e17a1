"""What a consumer may take from sealed records of its producers, along the registry's edges, and why not more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parproof import registry
from parproof.errors import UsageError
from parproof.evidence.attempts import worst_of
from parproof.evidence.audit import records, require_sound
from parproof.evidence.level import LEVELS

# Which risk of a plan the records of a role can answer.
ANSWERS = {
    "state_sharding": "inspect_collective_frequency",
    "layer_split": "inspect_bubble_and_stage_balance",
    "tensor_split": "inspect_all_reduce_exposure",
    "expert_split": "inspect_expert_load_and_all_to_all",
    "sequence_split": "inspect_sequence_collective_exposure",
    "request_split": "inspect_queue_balance_and_cache_locality",
}


@dataclass(frozen=True)
class Consumption:
    """One edge: usable or not, and the reason in either case; `answers` is the risk that this settles, if any."""

    producer: str
    role: str
    usable: bool
    reason: str
    workload: str | None = None

    @property
    def answers(self) -> str | None:
        """A role without a plan of its own (a cost, an exposed time) answers nothing, nor does what was refused."""
        return ANSWERS.get(self.role) if self.usable else None


def consume(directory: Path, consumer: str, *, min_level: str = "real_benchmark") -> list[Consumption]:
    """Judge every edge of a consumer. Evidence below `min_level` informs, but answers no risk.

    Errors   UsageError for an unknown consumer, one without edges, or evidence that does not pass its audit;
             Unusable when there is none
    """
    edges_of(consumer)
    require_sound(directory)
    by_producer: dict[str, list[dict[str, Any]]] = {}
    for record in records(directory):
        by_producer.setdefault(record["identity"]["semantic_id"], []).append(record)
    return judge(consumer, by_producer, min_level)


def edges_of(consumer: str) -> list[registry.Edge]:
    """What it may consume. Errors: UsageError for a consumer without edges, or an unknown one."""
    edges = [edge for edge in registry.load().edges if edge.consumer == consumer]
    if not edges:
        known = ", ".join(sorted({edge.consumer for edge in registry.load().edges}))
        raise UsageError(f"{consumer} consumes nothing", expected=f"one of {known}", where="consume")
    return edges


def judge(
    consumer: str, by_producer: Mapping[str, Sequence[Mapping[str, Any]]], min_level: str = "real_benchmark"
) -> list[Consumption]:
    """Every edge of a consumer, over records of evidence that has passed its audit; of attempts the worst counts."""
    judged = [
        _judge(edge.producer, edge.role, worst_of(by_producer.get(edge.producer, ())), min_level)
        for edge in edges_of(consumer)
    ]
    return _of_equal_workload(judged)


def answered_risks(consumed: Sequence[Consumption]) -> frozenset[str]:
    """Risks that usable records answer: the `closed_risks` of a Situation in subjects.decision_protocol."""
    return frozenset(edge.answers for edge in consumed if edge.answers)


def _judge(producer: str, role: str, produced: Sequence[Mapping[str, Any]], min_level: str) -> Consumption:
    def refused(reason: str) -> Consumption:
        return Consumption(producer, role, False, reason)

    ran = [record for record in produced if record["conclusion"]["status"] != "skipped"]
    if not ran:
        return refused("no record that ran")
    wrong = [
        r for r in ran if r["conclusion"]["status"] != "ok" and not r["conclusion"]["expected_nonconformance"]
    ]
    if wrong:
        return refused(f"correctness: {wrong[0]['identity']['nodeid']} is {wrong[0]['conclusion']['status']}")
    experiment = registry.load().experiment(producer)
    shown = {c for r in ran if r["conclusion"]["status"] == "ok" for c in r["identity"]["claims"]}
    missing = [
        claim.id
        for claim in (experiment.claims if experiment else ())
        if claim.required and claim.id not in shown
    ]
    if missing:
        return refused(f"claims {', '.join(missing)} were not shown")
    strong = [r for r in ran if _reaches(r, min_level) and r["conclusion"]["status"] == "ok"]
    if not strong:
        best = max((r["conclusion"]["evidence_level"] for r in ran), key=LEVELS.index)
        return refused(f"level {best}, {min_level} is needed to answer a risk")
    workloads = {_workload(record) for record in strong}
    if len(workloads) > 1:
        return refused(f"unequal workloads: {' and '.join(sorted(workloads)[:2])}")
    known = [record for record in ran if record["conclusion"]["expected_nonconformance"]]
    for record in known:
        if _reaches(record, min_level) or _workload(record) in workloads:
            listed, nodeid = record["conclusion"]["expected_nonconformance"], record["identity"]["nodeid"]
            return refused(f"correctness: {nodeid} is wrong, if as listed: {listed}")
    text = f"{len(strong)} records of {min_level} or above"
    if known:
        text += f"; wrong on other workloads, as listed: {len(known)}"
    return Consumption(producer, role, True, text, workloads.pop())


def _reaches(record: Mapping[str, Any], min_level: str) -> bool:
    return LEVELS.index(record["conclusion"]["evidence_level"]) >= LEVELS.index(min_level)


def _workload(record: Mapping[str, Any]) -> str:
    return f"{record['identity']['workload_id']} {sorted(record['identity']['workload'].items())}"


def _of_equal_workload(judged: list[Consumption]) -> list[Consumption]:
    """What is usable alone is usable together only on one workload."""
    workloads = sorted({edge.workload for edge in judged if edge.usable and edge.workload})
    if len(workloads) < 2:
        return judged
    text = f"unequal workloads between producers: {workloads[0]} and {workloads[1]}"
    return [Consumption(e.producer, e.role, False, text) if e.usable else e for e in judged]
