"""What envelopes with workload, hardware, metrics, failure and decision have in common, whoever wrote them."""

from __future__ import annotations

import re
from typing import Any

from parproof import registry
from parproof.evidence.exchange.assessment import Assessment, figures, leaves, mapping, number, numbers, word
from parproof.evidence.exchange.contract import DECISIONS, LEVELS, ROLES, shown

PERFORMANCE = re.compile(
    r"throughput|_per_s\b|_per_s_|(?:^|_)(?:ms|us)(?:$|_|\[|\.)|gbps|latency|speedup|tpot|ttft|efficiency",
    re.IGNORECASE,
)
_CPU = re.compile(r"\bcpu\b|\bgloo\b|\bfake\b|simulat", re.IGNORECASE)
# Names of figures that speak of GPUs or of more ranks than one.
_SCALING = re.compile(r"scaling|speedup|gpu_memory|peak_memory", re.IGNORECASE)
_DECIDED = ("accept", "ready_for_review", "promote")


def claims(told: Assessment, document: dict[str, Any]) -> None:
    """As written; the decision in either of its shapes."""
    decision = document.get("decision")
    if isinstance(decision, dict):
        decision = decision.get("decision", decision.get("status"))
    told.claims = {
        name: document.get(name) for name in ("evidence_level", "role", "project", "strategy", "semantic_id")
    } | {"decision": decision}
    told.give("conclusion", failure=document.get("failure"), evidence_level=document.get("evidence_level"))
    told.give("conclusion", decision=decision)


def measured(told: Assessment, document: dict[str, Any]) -> None:
    """Was anything measured, and on what?"""
    told.measured = any(number(leaf) is not None for _, leaf in leaves(document.get("metrics")))
    hardware = document.get("hardware")
    given = hardware if isinstance(hardware, str) else accelerator_of(mapping(hardware))
    if given and not _CPU.search(given):
        told.accelerator = True
        told.give("hardware", accelerator=shown(given))


def accelerator_of(hardware: dict[str, Any]) -> str | None:
    """What a hardware mapping names as accelerator, under the names in use."""
    for name in ("gpu", "gpus", "gpu_name", "accelerator", "device", "device_name"):
        given = hardware.get(name)
        if isinstance(given, (str, list)) and given:
            return str(given)
    return (
        next(
            (
                str(rank["device"])
                for rank in hardware.get("ranks") or ()
                if isinstance(rank, dict) and rank.get("device")
            ),
            None,
        )
        if isinstance(hardware.get("ranks"), list)
        else None
    )


def world_size_of(document: dict[str, Any]) -> int | None:
    """Under the places in use."""
    for holder in (document, mapping(document.get("hardware")), mapping(document.get("workload"))):
        size = holder.get("world_size")
        if isinstance(size, int) and not isinstance(size, bool):
            return size
    return None


def check_level(told: Assessment, document: dict[str, Any]) -> None:
    """The word, and whether anything stands behind it."""
    level = document.get("evidence_level")
    text = word(level)
    failed, size = bool(document.get("failure")), world_size_of(document)
    if text not in LEVELS:
        told.found("level-not-canonical", "evidence_level", level, f"one of {', '.join(LEVELS)}")
    real = text is not None and (text.startswith("real_") or text in ("gpu_smoke", "profiler_trace"))
    if real and (failed or not told.measured or not told.accelerator):
        why = (
            "the run failed"
            if failed
            else "nothing was measured"
            if not told.measured
            else "no accelerator took part"
        )
        told.found("level-before-run", "evidence_level", level, why)
    if text == "cpu_simulation" and not told.measured and not failed:
        told.found("nothing-measured", "evidence_level", level, "no figure in metrics")
    if text and "preflight" in text and not failed:
        told.found("preflight-as-evidence", "evidence_level", level, "that an environment was looked at")
    if real and size is not None and size < 2 and "smoke" not in str(text):
        told.found(
            "single-process", "world_size", size, "two or more ranks for a level that speaks of several"
        )


def check_failure(told: Assessment, document: dict[str, Any]) -> None:
    """What failed is told, and has no performance."""
    failure = document.get("failure")
    if failure is not None and not isinstance(failure, dict):
        told.found("failure-form", "failure", failure, "null or a mapping")
    if not failure:
        return
    told.failed = True
    told.limited("failed", "failure", failure)
    told.give("conclusion", correctness="not_evaluated")
    found = [place for place, _ in figures(document.get("metrics"), "metrics") if PERFORMANCE.search(place)]
    if found:
        told.found(
            "failure-and-performance", found[0], f"{len(found)} figures", "the failure and nothing else"
        )


def check_decision(told: Assessment) -> None:
    """A known word; and none that needs a second run."""
    decision = told.claims["decision"]
    if not isinstance(decision, str) or decision not in DECISIONS:
        told.found("decision-unknown", "decision", decision, f"one of {', '.join(DECISIONS)}")
    if isinstance(decision, str) and decision.startswith(_DECIDED):
        told.found("decision-needs-comparison", "decision", decision, "pending: one file is no comparison")


def check_correctness(told: Assessment, document: dict[str, Any]) -> None:
    """Correctness comes before any figure of speed."""
    for holder in (mapping(document.get("metrics")), mapping(document.get("quality")), document):
        for name in ("correctness", "correct", "is_correct"):
            if name in holder:
                told.give("conclusion", correctness=shown(holder[name]))
                if holder[name] in (False, "fail", "failed", "wrong"):
                    told.found("wrong-and-performance", name, holder[name], "the fault and nothing else")
                return
    told.limited("correctness-not-judged", "metrics")


def check_ranks(told: Assessment, metrics: dict[str, Any], size: int | None, where: str = "metrics") -> None:
    """Lists that speak of every rank have an entry for every rank."""
    for name, value in metrics.items():
        place = f"{where}.{name}"
        if name.endswith("_per_rank") or name.startswith("rank_") or name.endswith("_rank_ms"):
            per_rank = numbers(value)
            if "max_rank" in name:
                continue
            if per_rank is None and number(value) is not None and ("memory" in name):
                told.found("memory-of-one-rank", place, value, "a list with the figure of every rank")
            elif per_rank is not None and size is not None and len(per_rank) != size:
                told.found("ranks-incomplete", place, f"{len(per_rank)} values", f"{size} ranks")


def check_identity(told: Assessment, document: dict[str, Any]) -> None:
    """One world size, every rank once; and a global batch that is the product of its parts."""
    workload, hardware = mapping(document.get("workload")), mapping(document.get("hardware"))
    places = {"": document, "hardware.": hardware, "workload.": workload}
    sizes = {f"{place}world_size": number(holder.get("world_size")) for place, holder in places.items()}
    known = {place: size for place, size in sizes.items() if size is not None}
    if len(set(known.values())) > 1:
        told.found("identity-consistent", "world_size", known, "one number")
    ranks = hardware.get("ranks")
    if isinstance(ranks, list) and ranks and known:
        ids = {str(rank.get("rank")) for rank in ranks if isinstance(rank, dict)}
        if len(ranks) != len(ids) or len(ids) != max(known.values()):
            told.found(
                "identity-consistent",
                "hardware.ranks",
                f"{len(ids)} ranks",
                f"{max(known.values()):g}, each once",
            )
    parts = [number(workload.get(name)) for name in ("micro_batch", "gradient_accumulation")]
    batch, size = number(workload.get("global_batch")), max(known.values(), default=None)
    if batch is not None and size is not None and parts[0] is not None and parts[1] is not None:
        product = parts[0] * parts[1] * size
        if product != batch:
            told.found(
                "value-derived",
                "workload.global_batch",
                batch,
                f"{product:g}: micro batch, accumulation, ranks",
            )


def check_gpu_words(told: Assessment, document: dict[str, Any]) -> None:
    """Figures about GPUs and scaling from a run that had none."""
    level = document.get("evidence_level")
    if told.accelerator and level not in ("theoretical", "cpu_simulation"):
        return
    for place, value in figures(document.get("metrics"), "metrics"):
        if _SCALING.search(place):
            told.found(
                "simulation-as-scaling", place, value, "transitions, constraints, comparison of candidates"
            )
            return


def experiment_of(project: object) -> registry.Experiment | None:
    """What a project field means: a semantic id, or a page number that meant one thing in every revision."""
    known = registry.load()
    text = str(project) if isinstance(project, (str, int)) else ""
    found = known.experiment(text)
    if found is None:
        found = next((e for e in known.experiments if (text, "all") in e.aliases), None)
    return found


def check_project(told: Assessment, document: dict[str, Any]) -> None:
    """Role and project belong together; a number says little."""
    project, role = document.get("project"), document.get("role")
    meaning = experiment_of(project)
    told.give("identity", page=project if str(project).isdecimal() else None)
    if str(project).isdecimal():
        told.limited("page-number", "project", project)
    if meaning is None:
        told.limited("project-not-registered", "project", project)
        return
    told.give("identity", semantic_id=meaning.id)
    if meaning.kind != "project" and isinstance(role, str) and role in ROLES.values():
        told.found(
            "mechanism-as-project",
            "project",
            f"{meaning.id} as {role}",
            f"a {meaning.kind}, which has no role",
        )
    elif role in ROLES.values() and ROLES.get(meaning.id) != role:
        told.found("role-of-project", "role", f"{meaning.id} as {role}", str(ROLES.get(meaning.id)))
