"""Rules about one record: what it says of itself must follow from what it holds."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from parproof import registry
from parproof.evidence import ledger_summary, level, wire_model
from parproof.evidence.audit.findings import Pair, record_rule
from parproof.evidence.reasons import PUBLIC_GROUPS
from parproof.evidence.record import largest_run, last_run, not_shown

_MAX_COMPARED = 1_000_000
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
    if record["conclusion"]["decision"] != "pending":
        yield f"decision {record['conclusion']['decision']}", "pending"


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


@record_rule("timing-repeated", "A timing has warm-up and repeats, and every rank's samples.")
def timing_repeated(record: dict[str, Any]) -> Iterator[Pair]:
    """The first round pays for connections; one sample has no spread."""
    world_size = record["topology"]["world_size"]
    for entry in record["time"]["measured"] or ():
        if entry["warmup"] < 1 or entry["repeats"] < level.MIN_REPEATS:
            yield f"timing {entry['name']}", f"{entry['warmup']} warm-up rounds, {entry['repeats']} repeats"
        if world_size is not None and len(entry["samples_s"]) != world_size:
            yield f"timing {entry['name']} of {world_size} ranks", f"samples of {len(entry['samples_s'])}"


@record_rule("timing-derived", "Median and P95 are those of the slowest rank in each repeat.")
def timing_derived(record: dict[str, Any]) -> Iterator[Pair]:
    """A mean over ranks hides the one that everybody waits for."""
    for entry in record["time"]["measured"] or ():
        lengths = {len(samples) for samples in entry["samples_s"]}
        if lengths != {entry["repeats"]}:
            yield f"{entry['repeats']} repeats of {entry['name']}", f"{sorted(lengths)} samples a rank"
            continue
        slowest = sorted(max(samples) for samples in zip(*entry["samples_s"], strict=True))
        derived = statistics.median(slowest), slowest[-(-95 * len(slowest) // 100) - 1]
        if (entry["median_s"], entry["p95_s"]) != derived:
            yield (
                f"median, P95 {entry['median_s']}, {entry['p95_s']} of {entry['name']}",
                f"{derived[0]}, {derived[1]}",
            )


@record_rule(
    "observation-consistent", "Workload and calls of the observation are those of the record and its ledger."
)
def observation_consistent(record: dict[str, Any]) -> Iterator[Pair]:
    """Otherwise a level could rest on a workload nobody fixed, or on calls nobody made."""
    observation, told = record["observation"], record["communication"]
    if observation is None:
        return
    if observation["workload_id"] != record["identity"]["workload_id"]:
        yield f"workload {observation['workload_id']}", str(record["identity"]["workload_id"])
    last = observation["runs"][-1] if observation["runs"] else None
    if last is None:
        if told["ledger"] is not None or (told["predicted"] and record["conclusion"]["status"] == "ok"):
            yield "a ledger, or traffic that was predicted for one", "no run that ended well"
        return
    calls = sum(line["calls"] * len(line["ranks"]) for line in told["ledger"] or ())
    if (last["calls_seen"], last["ledger_complete"]) != (calls, told["ledger_complete"]):
        claimed = f"{last['calls_seen']} calls seen, complete: {last['ledger_complete']}"
        yield claimed, f"{calls} calls in the ledger, complete: {told['ledger_complete']}"


@record_rule(
    "wire-modelled", "Wire bytes are told for each rank, and modelled only for a backend with a model."
)
def wire_modelled(record: dict[str, Any]) -> Iterator[Pair]:
    """Logical bytes are not network bytes: gloo sends an all-reduce where a reduce-scatter was asked for."""
    told, world_size = record["communication"], record["topology"]["world_size"]
    if told["wire_model"] and told["wire_model"]["model"] != wire_model.MODELS.get(told["backend"]):
        yield f"model «{told['wire_model']['model']}»", f"none for backend {told['backend']}"
    if told["wire_bytes"] is not None and len(told["wire_bytes"]) != world_size:
        yield f"wire bytes of {len(told['wire_bytes'])} ranks", f"{world_size} ranks"


@record_rule("timing-observed", "Warm-up and repeats of the observation are those of the timings.")
def timing_observed(record: dict[str, Any]) -> Iterator[Pair]:
    """Otherwise a level could rest on repeats that were never made."""
    if record["observation"] is None:
        return
    measured = record["time"]["measured"] or ()
    derived = (
        min((entry["warmup"] for entry in measured), default=None),
        min((entry["repeats"] for entry in measured), default=None),
    )
    claimed = (record["observation"]["warmup"], record["observation"]["repeats"])
    if claimed != derived:
        yield f"warm-up, repeats {claimed}", str(derived)


@record_rule("timing-after-correctness", "No timing is read where a value claim failed.")
def timing_after_correctness(record: dict[str, Any]) -> Iterator[Pair]:
    """A wrong result can be as fast as it likes."""
    time, status = record["time"], record["conclusion"]["status"]
    figures = [n for n in ("measured", "compute_s", "communication_s", "exposed_s") if time[n] is not None]
    if figures and status != "ok":
        yield f"a timing ({', '.join(figures)})", f"status {status}"


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


@record_rule("topology-observed", "Topology and backend are those of the runs that were seen.")
def topology_observed(record: dict[str, Any]) -> Iterator[Pair]:
    """A placement that exists only on paper is no placement."""
    observation = record["observation"]
    largest, last = largest_run(observation), last_run(observation)
    derived = (largest["world_size"], largest["ranks"]) if largest else (None, None)
    if (record["topology"]["world_size"], record["topology"]["ranks"]) != derived:
        yield f"world size {record['topology']['world_size']}", str(derived[0])
    told = record["communication"]
    seen = (last["backend"], last["launcher"]) if last else (None, None)
    num_runs = len(observation["runs"]) if observation else 0
    if (told["backend"], told["launcher"], told["num_runs"]) != (*seen, num_runs):
        claimed = told["backend"], told["launcher"], told["num_runs"]
        yield f"backend, launcher, runs {claimed}", str((*seen, num_runs))


@record_rule(
    "ledger-matches-prediction",
    "Where traffic was predicted and the record is ok, ledger and prediction agree.",
)
def ledger_matches_prediction(record: dict[str, Any]) -> Iterator[Pair]:
    """Calls and bytes of the predicted rank, and nothing that nobody predicted."""
    told = record["communication"]
    if told["predicted"] is None or record["conclusion"]["status"] != "ok":
        return
    if len(told["ledger"] or ()) * len(told["predicted"]["lines"]) > _MAX_COMPARED:
        yield "a prediction that can be checked", f"more than {_MAX_COMPARED} pairs of lines"
    elif not ledger_summary.agrees(told["ledger"] or (), told["predicted"]):
        yield f"predicted traffic of rank {told['predicted']['rank']} was seen", "the ledger says otherwise"


@record_rule("ledger-complete", "A traffic claim that passed rests on ledgers that saw every call.")
def ledger_complete(record: dict[str, Any]) -> Iterator[Pair]:
    """«Nothing else occurred» cannot be said of calls that nobody watched."""
    told = record["communication"]
    about_traffic = told["predicted"] is not None or "ledger" in record["identity"]["tiers"]
    if not about_traffic or record["conclusion"]["status"] != "ok":
        return
    if told["ledger"] is None:
        yield "a traffic claim", "no ledger"
    elif told["ledger_complete"] is False or (told["backend"] == "gloo" and told["ledger_complete"] is None):
        yield "nothing else was sent", f"ledger complete: {told['ledger_complete']}"
