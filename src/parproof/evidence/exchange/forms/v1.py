"""`distributed-benchmark/v1`, as anybody writes it; and our own stricter form of it."""

from __future__ import annotations

import re
from typing import Any

from parproof.evidence.exchange import assessment, quantities
from parproof.evidence.exchange.assessment import Assessment, figures, leaves, mapping, number, numbers, word
from parproof.evidence.exchange.contract import SCHEMA_VERSION
from parproof.evidence.exchange.forms import envelope, mechanism
from parproof.evidence.schemas import violations

STRICT = f"{SCHEMA_VERSION} (strict)"
_KERNEL_SUM = re.compile(r"(?:sum|total)\w*kernel|kernel\w*(?:sum|total)", re.IGNORECASE)
_NETWORK = re.compile(r"(?:network|wire|nic)_bytes", re.IGNORECASE)
_LOGICAL = re.compile(
    r"(?:logical|routed|dispatch|payload)\w*bytes|bytes\w*(?:logical|routed)", re.IGNORECASE
)
_SEVERAL_HOSTS = re.compile(r"cross[-_ ]?node|multi[-_ ]?(?:node|host)", re.IGNORECASE)
MAX_LOGICAL = 100
_ENGINES = ("vllm", "sglang", "tensorrt", "trt", "lmdeploy", "tgi", "ray serve")


def recognise(document: Any) -> Assessment | None:
    """A document that names the version, or has a role of the contract beside its fields."""
    if not isinstance(document, dict):
        return None
    if document.get("schema_version") == SCHEMA_VERSION:
        by = f"schema_version {SCHEMA_VERSION}"
    elif "schema_version" not in document and {"role", *mechanism.SIX_KEYS} <= set(document):
        by = "role beside the six keys of the pages"
    else:
        return None
    if not any(violations("distributed-benchmark", document)):
        return _strict(document)
    told = Assessment(SCHEMA_VERSION, by)
    read_envelope(told, document)
    told.close()
    return told


def _strict(document: dict[str, Any]) -> Assessment:
    """Our own form keeps every rule of the contract by its schema; what it says is bound by its sources."""
    told = Assessment(STRICT, "our schema, which is stricter than the contract")
    envelope.claims(told, document)
    envelope.measured(told, document)
    metrics, hardware, workload = document["metrics"], document["hardware"], document["workload"]
    told.measured = metrics["kind"] == "result" and told.measured
    told.accelerator = any(str(rank.get("device")).startswith("cuda") for rank in hardware["ranks"] or ())
    told.give(
        "identity", **{name: workload[name] for name in ("semantic_id", "workload_id", "run_label", "page")}
    )
    told.give("identity", strategy=workload["strategy"])
    told.give(
        "hardware", **{name: hardware[name] for name in ("accelerator", "world_size", "scope", "links")}
    )
    ranks = hardware["ranks"]
    told.give(
        "hardware", rank_to_device={str(r.get("rank")): r.get("device") for r in ranks} if ranks else None
    )
    lines = [mapping(line) for line in metrics["communication"]["ledger"] or ()]
    told.give("communication", backend=metrics["communication"]["backend"])
    told.give("communication", collective=sorted({str(line.get("op")) for line in lines}) or None)
    told.give(
        "communication", payload_bytes=sum(int(number(line.get("in_bytes")) or 0) for line in lines) or None
    )
    told.give("communication", call_count=sum(int(number(line.get("calls")) or 0) for line in lines) or None)
    told.give(
        "time", **{name: metrics["time"][name] for name in ("compute_s", "communication_s", "exposed_s")}
    )
    _give_times_and_load(told, metrics)
    told.give("conclusion", correctness=document["artifacts"]["conclusion"]["correctness"])
    told.give("conclusion", fallback=document["artifacts"]["conclusion"]["fallback"])
    told.limited("evidence-not-given", "sources", document["artifacts"]["evidence"]["digest"])
    quantities.check(told, {"hardware": hardware, "metrics": metrics})
    if document["failure"]:
        told.limited("failed", "failure", document["failure"]["reason"])
    told.close()
    return told


def _give_times_and_load(told: Assessment, metrics: dict[str, Any]) -> None:
    measured = [mapping(entry) for entry in metrics["time"]["measured"] or ()]
    for name in ("median_s", "p95_s"):
        told.give("time", **{name: {str(entry.get("name")): entry.get(name) for entry in measured} or None})
    told.give("load", per_rank=metrics["load"]["per_rank"], max_over_mean=metrics["load"]["max_over_mean"])
    kept = {name: metrics["load"][name] for name in ("overflow", "idle_ratio")}
    told.give(
        "load", overflow_or_idle={name: value for name, value in kept.items() if value is not None} or None
    )


def read_envelope(told: Assessment, document: dict[str, Any]) -> None:
    """Everything that is asked of a foreign record, but for its level against what is supported."""
    assessment.check_finite(told, document, "")
    assessment.check_contract(told, document)
    envelope.claims(told, document)
    envelope.measured(told, document)
    envelope.check_project(told, document)
    envelope.check_level(told, document)
    envelope.check_failure(told, document)
    envelope.check_decision(told)
    envelope.check_correctness(told, document)
    envelope.check_gpu_words(told, document)
    envelope.check_identity(told, document)
    size = envelope.world_size_of(document)
    workload = mapping(document.get("workload"))
    if "model" in workload and not word(workload.get("revision")):
        told.limited("version-not-recorded", "workload.revision", workload["model"])
    told.give("hardware", world_size=size)
    told.give(
        "identity", workload_id=word(workload.get("workload_id")), run_label=word(document.get("run_label"))
    )
    told.give("identity", strategy=word(document.get("strategy")) or word(workload.get("strategy")))
    told.give("communication", backend=word(document.get("backend")) or word(workload.get("backend")))
    envelope.check_ranks(told, mapping(document.get("metrics")), size)
    _give_figures(told, mapping(document.get("metrics")))
    _check_empty(told, document)
    _check_benchmark(told, document)
    _check_hosts(told, document)
    _check_words(told, document)
    _check_kind(told, document)
    check_sources(told, document)
    quantities.check(told, document)


def _give_figures(told: Assessment, metrics: dict[str, Any]) -> None:
    """Public fields under the names in use: medians and percentiles in seconds, load of each rank."""
    for name, value in metrics.items():
        figure, ranks = number(value), numbers(value)
        if figure is not None and (found := _TIME.fullmatch(name)):
            told.give("time", **{f"{found[1]}_s": figure * _UNITS[found[2]]})
        elif name == "overflow" and figure is not None:
            told.give("load", overflow_or_idle=figure)
        elif ranks is not None and name.endswith("_per_rank") and "_ms" in name:
            told.give("load", per_rank=ranks)
            if sum(ranks) > 0:
                told.give("load", max_over_mean=max(ranks) * len(ranks) / sum(ranks))


_TIME = re.compile(r"(median|p95|compute|communication|exposed)(?:_\w+)?_(s|ms|us)")
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def _check_empty(told: Assessment, document: dict[str, Any]) -> None:
    """A run that succeeded has a workload, hardware and figures."""
    if document.get("failure"):
        return
    for name in ("workload", "hardware", "metrics"):
        if document.get(name) == {}:
            told.found("empty-mapping", name, "{}", f"the {name} of the run")


def _check_benchmark(told: Assessment, document: dict[str, Any]) -> None:
    """Fixed workload and a named model or backend: without them no benchmark."""
    if document.get("evidence_level") not in ("real_benchmark", "profiler_trace"):
        return
    workload = mapping(document.get("workload"))
    named = [
        name
        for name in ("model", "model_id", "model_name", "backend")
        if word(workload.get(name) or document.get(name))
    ]
    if not named or str(workload.get("model", "")).startswith("synthetic"):
        told.found(
            "workload-not-fixed",
            "workload",
            workload or "nothing",
            "a named model or backend, with its revision",
        )


def _check_hosts(told: Assessment, document: dict[str, Any]) -> None:
    """Several hosts are what ranks were seen on, not a word or a number."""
    hardware, workload = mapping(document.get("hardware")), mapping(document.get("workload"))
    ranks = hardware.get("ranks") if isinstance(hardware.get("ranks"), list) else []
    hosts = {str(rank.get("hostname") or rank.get("host")) for rank in ranks or () if isinstance(rank, dict)}
    devices = {
        str(r.get("rank")): str(r["device"]) for r in ranks or () if isinstance(r, dict) and r.get("device")
    }
    scope = None if not hosts else "multi_host" if len(hosts) > 1 else "single_host"
    told.give("hardware", rank_to_device=devices or None, scope=scope)
    if not hosts:
        told.limited("hosts-not-told", "hardware")
    elif len(hosts) == 1:
        told.limited("one-host", "hardware.ranks", next(iter(hosts)))
    several = [
        (place, leaf)
        for place, leaf in leaves(
            {"hardware": hardware, "workload": workload, "metrics": document.get("metrics")}
        )
        if (_SEVERAL_HOSTS.search(place.split(".")[-1]) and leaf not in (None, False, 0))
        or (place.startswith("hardware.") and isinstance(leaf, str) and _SEVERAL_HOSTS.search(leaf))
        or (re.search(r"(?:num_|n)?(?:nodes|hosts)$", place) and (number(leaf) or 0) > 1)
    ]
    if several and len(hosts) < 2:
        place, leaf = several[0]
        told.found("cross-node-claim", place, leaf, f"{len(hosts)} hosts told by the ranks")


def _check_words(told: Assessment, document: dict[str, Any]) -> None:
    """Figures whose names claim what they cannot."""
    told_figures = figures(document.get("metrics"), "metrics")
    names = " ".join(place for place, _ in told_figures)
    exposed, throughput, effective = (part in names for part in ("exposed", "throughput", "effective"))
    logical = [(place, value) for place, value in told_figures if _LOGICAL.search(place)][:MAX_LOGICAL]
    for place, value in told_figures:
        if not exposed and _KERNEL_SUM.search(place):
            told.found("kernel-sum", place, value, "exposed time of the slowest rank")
        if _NETWORK.search(place) and any(p != place and v == value for p, v in logical):
            told.found("logical-as-network", place, value, "bytes that were counted on the network")
        overflow = value > 0 and place.rsplit(".", 1)[-1].startswith("overflow")
        if overflow and throughput and not effective:
            told.found("overflow-hidden", place, value, "effective throughput beside the overflow")
        if _LOGICAL.search(place):
            told.limited("logical-bytes", place, value)
    orchestration = [place for place, _ in leaves(document) if "placement_group" in place]
    if orchestration and not told.measured:
        told.found(
            "orchestration-as-communication", orchestration[0], "evidence", "that resources were reserved"
        )


def _check_kind(told: Assessment, document: dict[str, Any]) -> None:
    """Under a project's role: no mechanism, and a serving engine where serving is claimed."""
    bare = {name: value for name, value in document.items() if name != "schema_version"}
    kind = mechanism.kind_of(bare)
    if kind is not None and document.get("role") != "gpu_smoke":
        told.found(
            "mechanism-as-project", "role", document.get("role"), f"{kind[0]}, a mechanism ({kind[1]})"
        )
    backend = f"{document.get('backend')} {mapping(document.get('workload')).get('backend')}".lower()
    if (
        document.get("role") == "distributed_serving"
        and told.measured
        and not any(e in backend for e in _ENGINES)
    ):
        told.found("gemm-no-serving", "backend", backend, "requests that a serving engine answered")


def check_sources(told: Assessment, document: dict[str, Any]) -> None:
    """Each counts once and is named with its digest."""
    sources = document.get("sources")
    if not isinstance(sources, list):
        return
    told.limited("sources-not-read", "sources", f"{len(sources)} sources")
    seen: set[str] = set()
    for place, source in enumerate(sources):
        told_source = mapping(source)
        key = str(told_source.get("sha256") or told_source.get("path") or source)
        if key in seen:
            told.found(
                "source-twice", f"sources[{place}]", told_source.get("path"), "one count for one source"
            )
        seen.add(key)
        if not re.fullmatch("[0-9a-f]{64}", str(told_source.get("sha256"))):
            told.found("source-undigested", f"sources[{place}]", told_source.get("path"), "path and sha256")
