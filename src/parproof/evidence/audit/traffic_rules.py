"""Rules about ranks and their traffic: topology, ledger, prediction and wire are those of the runs that were seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parproof.evidence import ledger_summary, wire_model
from parproof.evidence.audit.findings import Pair, record_rule
from parproof.evidence.record import largest_run, last_run, strategy_of

_MAX_COMPARED = 1_000_000


@record_rule(
    "observation-consistent",
    "Workload, strategy, ranks and calls of the record are those of its observation and its ledger.",
)
def observation_consistent(record: dict[str, Any]) -> Iterator[Pair]:
    """Otherwise a level could rest on a workload nobody fixed, or on calls nobody made."""
    observation = record["observation"]
    if observation is None:
        return
    if observation["workload_id"] != record["identity"]["workload_id"]:
        yield f"workload {observation['workload_id']}", str(record["identity"]["workload_id"])
    strategy = strategy_of(record["identity"]["workload"], record["identity"]["parameters"])
    if record["identity"]["strategy"] != strategy:
        yield f"strategy {record['identity']['strategy']}", f"{strategy} in workload and parameters"
    if any(run["calls_seen"] and not run["ledger"] for run in observation["runs"]):
        yield "calls that were seen", "a ledger that was off"
    yield from _last_run(observation["runs"], record)


def _last_run(runs: list[dict[str, Any]], record: dict[str, Any]) -> Iterator[Pair]:
    told = record["communication"]
    last = runs[-1] if runs else None
    if last is None:
        if told["ledger"] is not None or (told["predicted"] and record["conclusion"]["status"] == "ok"):
            yield "a ledger, or traffic that was predicted for one", "no run that ended well"
        return
    calls = sum(line["calls"] * len(line["ranks"]) for line in told["ledger"] or ())
    if (last["calls_seen"], last["ledger_complete"]) != (calls, told["ledger_complete"]):
        claimed = f"{last['calls_seen']} calls seen, complete: {last['ledger_complete']}"
        yield claimed, f"{calls} calls in the ledger, complete: {told['ledger_complete']}"
    lines = told["ledger"] or ()
    ranks = {rank for line in lines for rank in line["ranks"]} | {(told["predicted"] or {"rank": 0})["rank"]}
    size = max((line["group_size"] for line in lines), default=0)
    if max(*ranks, 0) >= last["world_size"] or size > last["world_size"]:
        yield f"traffic of rank {max(ranks)}, a group of {size}", f"{last['world_size']} ranks"


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
    last = last_run(record["observation"])
    if told["wire_model"] and last and len(told["wire_model"]["sent_bytes"]) != last["world_size"]:
        yield (
            f"modelled bytes of {len(told['wire_model']['sent_bytes'])} ranks",
            f"{last['world_size']} ranks",
        )


@record_rule("topology-observed", "Topology, accelerator and backend are those of the runs that were seen.")
def topology_observed(record: dict[str, Any]) -> Iterator[Pair]:
    """A placement that exists only on paper is no placement."""
    observation = record["observation"]
    largest, last = largest_run(observation), last_run(observation)
    derived = (largest["world_size"], largest["ranks"]) if largest else (None, None)
    if (record["topology"]["world_size"], record["topology"]["ranks"]) != derived:
        yield f"world size {record['topology']['world_size']}", str(derived[0])
    named, ranks = record["topology"]["accelerator"], record["topology"]["ranks"] or ()
    if named is not None and all(rank["device"] == "cpu" for rank in ranks):
        yield f"accelerator {named}", "no rank on one"
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
