"""Rules against over-claiming: no word and no figure of a record goes further than what was seen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from parproof.evidence.audit.findings import Pair, record_rule
from parproof.evidence.level import may_claim_performance, moves_bytes, num_processes

_NOT_FINITE = {"nan", "inf", "infinity", "1.#inf", "1.#ind", "1.#qnan"}
# Words that a reader takes for speed, scaling or capacity of a machine. Rates of a process group on CPU have
# names of their own (bus_GBps, micro_batches_per_s) and stand beside the line that says what they do not show.
_PERFORMANCE = re.compile(
    r"(?:^|_)(?:speedup|speed_up|scaling|throughput|goodput|latency|mfu|tflops|ttft|tpot|faster"
    r"|(?:tokens|samples|requests|images)_per_s(?:ec(?:ond)?)?)(?:_|$)"
)
_GPU = re.compile(r"(?:^|_)(?:gpus?|nccl|cuda|hbm)(?:_|$)")
SEVERAL_HOSTS = re.compile(r"(?:cross|multi|inter|two|several)[\s_-]?(?:nodes?|hosts?|servers?)\b")
_RATE = re.compile(r"_per_s(?:ec(?:ond)?)?$|(?:^|_)throughput(?:_|$)")
_EFFECTIVE = re.compile(r"(?:^|_)(?:effective|goodput|kept)(?:_|$)")


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """(nearest name, plain value) of everything inside; nesting is bounded by the reader."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, name)
    else:
        yield name, value


def names(value: Any) -> Iterator[str]:
    """Every name inside, also of what holds no value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from names(item)
    elif isinstance(value, list):
        for item in value:
            yield from names(item)


@record_rule(
    "communication-real",
    "What is told of communication went over a real transport, with a process for each rank.",
)
def communication_real(record: dict[str, Any]) -> Iterator[Pair]:
    """A fake backend, threads, one process that copies tensors, or a placement that was only created."""
    told, time, observation = record["communication"], record["time"], record["observation"]
    if observation is None or record["conclusion"]["status"] != "ok":
        return
    labels = [
        text
        for holds, text in (
            (record["identity"]["claims"], f"claims {', '.join(record['identity']['claims'])[:200]}"),
            (told["predicted"], "traffic as predicted"),
            (told["wire_bytes"] or told["wire_model"], "bytes on the wire"),
            (time["communication_s"] is not None or time["exposed_s"] is not None, "communication time"),
            (time["measured"], "a timing"),
        )
        if holds
    ]
    runs = [*observation["runs"], *observation["failed_runs"]]
    for run in runs if labels else ():
        if run["world_size"] > 1 and not moves_bytes(run):
            seen = f"backend {run['backend']}, {num_processes(run)} processes for {run['world_size']} ranks"
            yield f"{'; '.join(labels)} of a process group", seen
            return


@record_rule(
    "finite-measured", "A pass rests on finite numbers: none says NaN or infinity, also not as text."
)
def finite_measured(record: dict[str, Any]) -> Iterator[Pair]:
    """JSON has no NaN, so somebody who wants to keep one writes it as a word."""
    if record["conclusion"]["status"] != "ok":
        return
    for name, value in leaves(record["measurements"]):
        if isinstance(value, str) and value.strip().lstrip("+-").lower() in _NOT_FINITE:
            yield f"a pass with {name} {value}", "no finite number was measured"


@record_rule(
    "words-supported",
    "Words of speed, scaling or several nodes stand only where level and scope bear them out.",
)
def words_supported(record: dict[str, Any]) -> Iterator[Pair]:
    """A figure is quoted by its name, and a run by its label; what is not shown is left behind."""
    level, scope = record["conclusion"]["evidence_level"], record["topology"]["scope"]
    for name in sorted(set(names(record["measurements"]))):
        told = _PERFORMANCE.search(name.lower()) or (level != "gpu_smoke" and _GPU.search(name.lower()))
        if told and not may_claim_performance(level):
            yield f"measurement {name}", f"level {level}"
    if record["observation"] is not None and scope != "multi_host":
        identity = record["identity"]
        for where in ("strategy", "workload_id"):
            if SEVERAL_HOSTS.search((identity[where] or "").lower()):
                yield f"{where} «{identity[where]}»", f"scope {scope}"


@record_rule("overflow-counted", "A rate beside an overflow is that of what was kept.")
def overflow_counted(record: dict[str, Any]) -> Iterator[Pair]:
    """Tokens that are dropped are fast."""
    told = [value for name, value in leaves(record["measurements"]) if name == "overflow"]
    lost = [value for value in (*told, record["load"]["overflow"]) if isinstance(value, (int, float))]
    if not any(value > 0 for value in lost):
        return
    for name in sorted(set(names(record["measurements"]))):
        if _RATE.search(name.lower()) and not _EFFECTIVE.search(name.lower()):
            yield f"rate {name}", f"an overflow of {max(lost)}; a rate of what was kept says so in its name"


@record_rule("load-derived", "Max over mean is that of the ranks' own loads, one for each rank.")
def load_derived(record: dict[str, Any]) -> Iterator[Pair]:
    """A mean hides the rank that everybody waits for."""
    load, world_size = record["load"], record["topology"]["world_size"]
    per_rank, claimed = load["per_rank"], load["max_over_mean"]
    if per_rank is None:
        if claimed is not None:
            yield f"max over mean {claimed}", "no load of any rank"
        return
    if world_size is not None and len(per_rank) != world_size:
        yield f"loads of {len(per_rank)} ranks", f"{world_size} ranks"
    total = sum(per_rank)
    derived = max(per_rank) * len(per_rank) / total if total else 1.0
    if claimed is not None and abs(claimed - derived) > 1e-6 * max(1.0, abs(derived)):
        yield f"max over mean {claimed}", f"{derived} of the loads given"
    if (load["idle_ratio"] or 0) > 1:
        yield f"idle ratio {load['idle_ratio']}", "at most 1"


@record_rule(
    "exposed-part",
    "Exposed communication is a part of communication, and no benchmark gives one without the other.",
)
def exposed_part(record: dict[str, Any]) -> Iterator[Pair]:
    """The sum over all kernels is no critical path: what overlaps with compute costs no time."""
    communication_s, exposed_s = record["time"]["communication_s"], record["time"]["exposed_s"]
    if communication_s is not None and exposed_s is not None and exposed_s > communication_s * (1 + 1e-9):
        yield f"exposed {exposed_s} s", f"communication {communication_s} s"
    alone = communication_s is not None and exposed_s is None
    if alone and may_claim_performance(record["conclusion"]["evidence_level"]):
        yield f"communication {communication_s} s", "no exposed time, so no part in the critical path"


@record_rule("strategy-observed", "A strategy that is named for its messages was seen to send them.")
def strategy_observed(record: dict[str, Any]) -> Iterator[Pair]:
    """Attention that gathers the whole sequence is no ring, however it is called."""
    identity = record["identity"]
    told = (identity["strategy"], identity["workload"].get("variant"), identity["parameters"].get("variant"))
    if record["conclusion"]["status"] != "ok" or "ring" not in told:
        return
    ops = {line["op"] for line in record["communication"]["ledger"] or () if not line["control"]}
    if "all_gather" in ops and not ops & {"send", "recv", "all_to_all"}:
        yield "strategy ring", f"{', '.join(sorted(ops))[:200]}: no message to a neighbour"
