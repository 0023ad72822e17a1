"""What a liar may do to good evidence, one deed each: named for the rule that finds it, «rule» or «rule--deed».

A liar who knows the format seals again what he has changed, and makes everything fit but his lie.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence_directory import (
    SMALL,
    STARTED,
    STEP,
    TRACE_DIGEST,
    Directory,
    at,
    other_runs,
    outcomes,
    taken_from,
)

from parproof.evidence import traces
from parproof.evidence.level import compute_level, compute_scope
from parproof.evidence.reasons import why_null
from parproof.evidence.record import Outcome, build, largest_run, not_shown, page_of

Deed = Callable[[Directory], Any]


@dataclass(frozen=True)
class Lie:
    """names: outcomes of the directory it is told in; told: one sentence; deed: what is done."""

    names: tuple[str, ...]
    told: str
    deed: Deed


LIES: dict[str, Lie] = {}


def lie(name: str, names: str = "", told: str = "") -> Callable[[Deed], Deed]:
    """Register a deed; without names it is done to the six records of the small run."""

    def register(deed: Deed) -> Deed:
        assert name not in LIES, name
        LIES[name] = Lie(tuple(names.split()) or SMALL, told or (deed.__doc__ or "").strip(), deed)
        return deed

    return register


def put(name: str, names: str, path: str, value: Any, told: str) -> None:
    """A value typed into the first record of a directory."""
    lie(name, names, told)(lambda directory: typed(directory.records[0], path, value))


def typed(record: dict[str, Any], path: str, value: Any) -> None:
    """Type a value into a record, and take its reason for being null away."""
    *way, last = path.split("/")
    target: Any = record
    for step in way:
        target = target[int(step) if isinstance(target, list) else step]
    target[last] = value
    if value is not None:
        record["not_collected"].pop(path.replace("/", "."), None)


def made_to_fit(record: dict[str, Any]) -> None:
    """Level, scope, topology and limits as they follow from an observation that was changed."""
    seen = record["observation"]
    level, why = compute_level(seen)
    record["topology"]["scope"] = scope = compute_scope(seen)
    largest = largest_run(seen)
    record["topology"] |= {k: largest[k] if largest else None for k in ("world_size", "ranks")}
    run = (seen["runs"] or [None])[-1]
    if run:
        record["communication"] |= {k: run[k] for k in ("backend", "launcher")}
    record["identity"]["page"] = page_of(record["identity"]["semantic_id"])
    limits = not_shown(record["identity"]["semantic_id"], level, scope)
    record["conclusion"] |= {"evidence_level": level, "level_reason": why, "not_shown": limits}
    record["not_collected"] = why_null(record)


def in_run(directory: Directory, **facts: Any) -> dict[str, Any]:
    """Change facts of the first record's run, and make the rest fit."""
    record = directory.records[0]
    record["observation"]["runs"][0] |= facts
    if facts.get("backend", "gloo") != "gloo":
        record["communication"]["wire_model"] = None
    made_to_fit(record)
    return record


def rewrite(change: Callable[[list[str]], Any]) -> Deed:
    """Change lines after they were chained; files and digest of the manifest are made to fit."""

    def deed(directory: Directory) -> None:
        def changed(path: Path) -> None:
            lines = (path / "records.jsonl").read_text().splitlines(keepends=True)
            change(lines)
            (path / "records.jsonl").write_text("".join(lines))
            directory.seal_again(path)

        directory.after_sealing.append(changed)

    return deed


# -- the seal -------------------------------------------------------------------------------------------------


def _swap(lines: list[str]) -> None:
    lines[0], lines[1] = lines[1], lines[0]


lie("chain", told="two records change places")(rewrite(_swap))
lie("chain--edited", told="a word of the first record is changed")(
    rewrite(lambda lines: lines.__setitem__(0, lines[0].replace("rank_coded_integers", "large_model_step__")))
)
lie("chain--truncated", told="the last record is cut off")(rewrite(lambda lines: lines.pop()))
lie("chain--duplicated", told="a record is there twice, byte for byte")(
    rewrite(lambda lines: lines.insert(1, lines[0]))
)


@lie("one-run", told="a record carries another run's id")
def _other_id(directory: Directory) -> None:
    directory.records[0] |= {"run_id": "0" * 32}


@lie("one-run--label", told="a record carries another label")
def _other_label(directory: Directory) -> None:
    directory.records[0]["identity"]["run_label"] = "nightly"


def _pasted(directory: Directory, kind: str) -> dict[str, Any]:
    """A record of another run in place of the first, its times made to fit."""
    record = taken_from(other_runs()[kind], 0)
    record["time"] |= {"started": None, "ended": None}
    del record["provenance"]["written"]
    directory.records[0] = record
    return record


@lie("source-bound", told="a record of another commit, chained again")
def _other_commit(directory: Directory) -> None:
    _pasted(directory, "another-commit")


@lie("environment-bound", told="a record of another machine, chained again")
def _other_machine(directory: Directory) -> None:
    _pasted(directory, "another-machine")


@lie(
    "environment-bound--ranks",
    told="the same, and the digest of this environment typed in: its ranks were elsewhere",
)
def _other_ranks(directory: Directory) -> None:
    del _pasted(directory, "another-machine")["provenance"]["environment"]


@lie(
    "environment-bound--emulated",
    "emulated",
    told="hosts that were emulated on one machine are called real ones",
)
def _called_real(directory: Directory) -> None:
    in_run(directory, host_kind="real")


@lie("clock-forward", told="the run ends before it has started")
def _ends_early(directory: Directory) -> None:
    directory.manifest["ended"] = at(STARTED - STEP)


@lie(
    "clock-forward--another-run",
    told="a record of an earlier run of the same commit on the same machine, chained again",
)
def _other_run(directory: Directory) -> None:
    directory.records[0] = taken_from(other_runs()["another-run"], 0)


@lie("clock-forward--between", told="a record was written before the one in front of it")
def _before_the_last(directory: Directory) -> None:
    directory.records[3]["provenance"]["written"] = at(STARTED)
    directory.records[3]["time"] |= {"started": at(STARTED), "ended": at(STARTED)}
    directory.records[3]["provenance"]["worker"] = "gw1"
    directory.records[3]["time"]["test_s"] = 0.0
    for name in ("started", "ended"):
        del directory.records[3]["not_collected"][f"time.{name}"]


@lie("clock-forward--at-once", told="two tests of one worker ran at the same time")
def _at_once(directory: Directory) -> None:
    typed(directory.records[1], "time/started", at(STARTED + STEP / 100))


@lie("clock-forward--longer", told="a test took longer than from its start to its end")
def _longer(directory: Directory) -> None:
    directory.records[0]["time"] |= {"started": at(STARTED), "ended": at(STARTED), "test_s": 3.5}
    for name in ("started", "ended"):
        del directory.records[0]["not_collected"][f"time.{name}"]


@lie("counted-once", told="a record is there again under another name")
def _again(directory: Directory) -> None:
    again = copy.deepcopy(directory.placed()[0])
    again = {k: v for k, v in again.items() if k not in ("run_id", "sequence", "previous")}
    again["identity"]["nodeid"] = again["identity"]["nodeid"].replace("native", "another")
    again["provenance"] = {"worker": "gw1"}
    directory.records.append(again)
    directory.manifest["collected"].append(again["identity"]["nodeid"])
    del directory.manifest["ended"]


@lie(
    "counted-once--samples",
    "timing",
    told="raw samples are there again under another name, as of another moment",
)
def _same_samples(directory: Directory) -> None:
    again = copy.deepcopy(directory.records[0])
    again["identity"]["nodeid"] += "again"
    directory.records.append(again)
    directory.manifest["collected"].append(again["identity"]["nodeid"])


@lie("files-bound", told="a file that nobody bound")
def _more(directory: Directory) -> None:
    directory.after_sealing.append(lambda path: (path / "more.json").write_text("{}\n"))


@lie("files-bound--changed", "value", told="another environment is put in place of the first")
def _environment(directory: Directory) -> None:
    def change(path: Path) -> None:
        text = (path / "environment.json").read_text()
        (path / "environment.json").write_text(text.replace('"num_cpus":2', '"num_cpus":96'))

    directory.after_sealing.append(change)


@lie("files-bound--removed", "trace", told="a trace is bound and not there")
def _no_trace(directory: Directory) -> None:
    directory.after_sealing.append(lambda path: (path / traces.name_of(TRACE_DIGEST)).unlink())


@lie("manifest-bound", told="a word of the manifest changes after sealing")
def _edited_manifest(directory: Directory) -> None:
    def change(path: Path) -> None:
        text = (path / "manifest.json").read_text()
        (path / "manifest.json").write_text(text.replace('"cpu"', '"all"'))

    directory.after_sealing.append(change)


@lie("manifest-bound--other-bytes", "value", told="the manifest is laid out anew")
def _laid_out(directory: Directory) -> None:
    def change(path: Path) -> None:
        manifest = json.loads((path / "manifest.json").read_text())
        (path / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")

    directory.after_sealing.append(change)


@lie("trace-kept--replaced", "trace", told="a trace is replaced by one with better times, and bound again")
def _better_trace(directory: Directory) -> None:
    name = traces.name_of(TRACE_DIGEST)
    directory.artefacts[name] = directory.artefacts[name].replace("4.5", "0.5")


@lie("trace-kept--empty", "trace", told="a trace without a complete event")
def _empty_trace(directory: Directory) -> None:
    text = '{"traceEvents": []}\n'
    digest = hashlib.sha256(text.encode()).hexdigest()
    directory.artefacts = {traces.name_of(digest): text}
    directory.records[0]["observation"]["traces"] = [digest]


put("trace-kept", "", "observation/traces", ["7ace" * 16], "a trace is named and is not there")

# -- what there should be, and how it counts -------------------------------------------------------------------


@lie("complete", told="a test is there twice, as of another moment")
def _twice(directory: Directory) -> None:
    directory.records.append(copy.deepcopy(directory.records[0]))


@lie("complete--another-model", "benchmark", told="the same test on another model is put beside the first")
def _another_model(directory: Directory) -> None:
    again = copy.deepcopy(directory.records[0])
    again["observation"]["model"] = "Qwen3-0.6B, revision c1899de2"
    entry = again["time"]["measured"][0]
    entry["samples_s"] = [[sample * 2 for sample in rank] for rank in entry["samples_s"]]
    entry |= {"median_s": entry["median_s"] * 2, "p95_s": entry["p95_s"] * 2}
    directory.records.append(again)


@lie("complete--unreported", told="a test was collected and never reported")
def _unreported(directory: Directory) -> None:
    directory.manifest["collected"].append(f"{directory.manifest['collected'][0]}-that-failed")


@lie("complete--left-out", told="a record that did not please is left out, and all is sealed again")
def _left_out(directory: Directory) -> None:
    del directory.records[3]


@lie("complete--uncollected", told="a record of a test that nobody collected")
def _uncollected(directory: Directory) -> None:
    del directory.manifest["collected"][0]


@lie("complete--ended-early", told="a run that was interrupted")
def _early(directory: Directory) -> None:
    directory.manifest |= {"complete": False, "exit_status": 2}


@lie("complete--unread-module", told="a module that could not be collected")
def _unread(directory: Directory) -> None:
    directory.manifest["collection_errors"] = ["tests/mechanisms/test_zero_state.py"]


@lie("counts", told="a skip is counted as a pass")
def _skip_as_pass(directory: Directory) -> None:
    directory.resealed["counts"] = {"ok": 5, "failed": 1, "blocked": 0, "skipped": 0}


@lie("counts--exit-status", told="a run with a failure nobody expected ended with 0")
def _ended_well(directory: Directory) -> None:
    typed(directory.records[3], "conclusion/expected_nonconformance", None)
    directory.records[3]["not_collected"] = why_null(directory.records[3])


@lie("required-claims", told="a required claim was skipped, and stands for the experiment")
def _only_skipped(directory: Directory) -> None:
    told = outcomes()["ledger"]
    skip = {"reason": "not today", "requirement": "", "found": "not today", "how": ""}
    bare = (told.nodeid, "skipped", 0.0, told.experiment, told.claims, told.lane)
    directory.records[1] = build(Outcome(*bare, skip=skip, subject=told.subject))


put("schema", "", "conclusion/verdict", "fast", "a field that the schema does not know")


@lie("schema--nan", "timing", told="NaN, which is no JSON, in a pass")
def _nan(directory: Directory) -> None:
    rewrite(
        lambda lines: lines.__setitem__(
            0, lines[0].replace('"measurements":{}', '"measurements":{"loss":NaN}')
        )
    )(directory)


@lie("schema--absent", "value", told="a figure that was not collected is left out instead of null")
def _absent(directory: Directory) -> None:
    del directory.records[0]["time"]["exposed_s"], directory.records[0]["not_collected"]["time.exposed_s"]


put(
    "schema--level-word", "value", "conclusion/evidence_level", "real_multi_gpu_smoke", "a level that is none"
)
put("null-has-reason", "", "not_collected", {}, "nulls without their reasons")
put("null-has-reason--value", "value", "not_collected/time.test_s", "not measured", "a reason beside a value")

# -- level, scope, lane ----------------------------------------------------------------------------------------


@lie("level-computed", told="a level is typed in")
def _typed_in(directory: Directory) -> None:
    directory.end(0)["evidence_level"] = "real_benchmark"
    directory.end(0)["not_shown"].append("other models, workloads, configurations, machines and versions")


def level_kept(name: str, names: str, told: str, change: Deed) -> None:
    """The observation changes, and the level stays as it was."""

    def deed(directory: Directory) -> None:
        record = directory.records[0]
        kept = {k: record["conclusion"][k] for k in ("evidence_level", "level_reason")}
        change(directory)
        made_to_fit(record)
        limits = not_shown(
            record["identity"]["semantic_id"], kept["evidence_level"], record["topology"]["scope"]
        )
        record["conclusion"] |= kept | {"not_shown": limits}
        record["not_collected"] = why_null(record)

    lie(name, names, told)(deed)


def _seen(directory: Directory) -> dict[str, Any]:
    found: dict[str, Any] = directory.records[0]["observation"]
    return found


def _preflight(directory: Directory) -> None:
    _seen(directory)["runs"] = []
    nothing = ("backend", "launcher", "ledger", "ledger_complete", "wire_model")
    directory.records[0]["communication"] |= dict.fromkeys(nothing) | {"num_runs": 0}


def _no_workload(directory: Directory) -> None:
    _seen(directory)["workload_id"] = None
    directory.records[0]["identity"]["workload_id"] = None


def _mixed(directory: Directory) -> None:
    _seen(directory)["runs"].insert(0, outcomes()["value"].runs[0][0])
    directory.records[0]["communication"]["num_runs"] = 2
    directory.records[0]["identity"]["lane"] = None


level_kept(
    "level-computed--preflight", "value", "a preflight without ranks is called communication", _preflight
)
level_kept(
    "level-computed--fake-backend",
    "value",
    "a fake backend is called a process group",
    lambda d: in_run(d, backend="fake"),
)
level_kept(
    "level-computed--no-model",
    "benchmark",
    "a benchmark without a model",
    lambda d: _seen(d).update(model=None),
)
level_kept("level-computed--no-workload", "benchmark", "a benchmark of no fixed workload", _no_workload)
level_kept(
    "level-computed--stand-in",
    "benchmark",
    "a benchmark of a synthetic matmul",
    lambda d: _seen(d).update(model="synthetic matmul 4096"),
)
level_kept("level-computed--mixed", "benchmark", "a smoke run inside becomes a benchmark by company", _mixed)
level_kept(
    "level-computed--no-trace", "trace", "profiled, and no trace kept", lambda d: _seen(d).update(traces=[])
)


@lie("level-computed--not-run", "skip value", told="a GPU cell that was never run has a GPU level")
def _not_run(directory: Directory) -> None:
    record = directory.records[0]
    record["conclusion"] |= {"evidence_level": "gpu_smoke", "level_reason": "ranks on GPUs"}
    del record["not_collected"]["conclusion.evidence_level"]


put("scope-computed", "", "topology/scope", "multi_host", "one host is called several")
put(
    "scope-computed--emulated",
    "emulated",
    "topology/scope",
    "multi_host",
    "emulated hosts are called several",
)
put("lane-observed", "", "identity/lane", "cuda2", "ranks on CPU in a GPU lane")
put(
    "lane-observed--one-host",
    "benchmark",
    "identity/lane",
    "cross_node",
    "two GPUs of one host in the cross-node lane",
)
put("lane-observed--gpu-as-cpu", "benchmark", "identity/lane", "cpu", "ranks on GPUs in the CPU lane")
put("limits-stated", "", "conclusion/not_shown", ["other machines"], "nothing is said of what is not shown")


def without_limit(name: str, names: str, word: str, told: str) -> None:
    """A line of what is not shown is gone."""

    def deed(directory: Directory) -> None:
        limits = directory.end(0)["not_shown"]
        directory.end(0)["not_shown"] = [line for line in limits if word not in line]

    lie(name, names, told)(deed)


without_limit("limits-stated--cpu-timing", "timing", "performance", "timing on CPU without its limit")
without_limit(
    "limits-stated--one-host", "benchmark", "cross-node", "a benchmark on one host speaks for several"
)
without_limit(
    "limits-stated--one-model", "benchmark", "other models", "a benchmark of one model speaks for all"
)
without_limit("limits-stated--verdict", "trace", "verdict", "a trace is taken for a verdict")


@lie("ranks-reported", told="one of two ranks did not report")
def _missing_rank(directory: Directory) -> None:
    in_run(directory, num_reports=1)


@lie("ranks-reported--twice", "value", told="a rank reports for two")
def _rank_twice(directory: Directory) -> None:
    ranks = copy.deepcopy(directory.records[0]["observation"]["runs"][0]["ranks"])
    ranks[1]["rank"] = 0
    in_run(directory, ranks=ranks)


@lie("topology-observed", told="another launcher than was seen")
def _launcher(directory: Directory) -> None:
    directory.records[0]["communication"]["launcher"] = "torchrun"


put(
    "topology-observed--accelerator",
    "value",
    "topology/accelerator",
    "NVIDIA H100",
    "named, and ranks on CPU",
)
put("topology-observed--paper", "value", "topology/world_size", 64, "a world that exists on paper")

# -- what may be said ------------------------------------------------------------------------------------------

put("status-consistent", "", "conclusion/correctness", "fail", "passed, and wrong")
put(
    "status-consistent--failure",
    "value",
    "conclusion/failure",
    {"type": "AssertionError", "message": "rank 0 of 2: differs", "phase": "call", "rank": 0},
    "passed, with a failure",
)


@lie("status-consistent--not-run", "skip", told="a test that was skipped has passed")
def _passed_unseen(directory: Directory) -> None:
    record = directory.records[0]
    record["conclusion"] |= {"status": "ok", "correctness": "pass", "skip": None}
    record["not_collected"] = why_null(record)


put(
    "nonconformance-is-a-finding",
    "",
    "conclusion/expected_nonconformance",
    "pytorch#1",
    "a known defect that passed",
)
put("decision-needs-comparison", "", "conclusion/decision", "accept", "one record accepts")


@lie(
    "decision-needs-comparison--unequal", "benchmark trace", told="accepted against a run of another workload"
)
def _accepted(directory: Directory) -> None:
    directory.end(0).update(decision="accept", decision_reason="twice as fast as on the long sequences")


put(
    "decision-needs-comparison--project",
    "project",
    "conclusion/decision",
    "accept",
    "a project accepts itself",
)
put("claims-registered", "", "identity/tiers", ["timing"], "another tier than the claim has")
put("claims-registered--claim", "value", "identity/claims", ["C1", "C99"], "a claim that nobody registered")
put(
    "claims-registered--experiment",
    "plain",
    "identity/semantic_id",
    "PAR-FASTER-THAN-LIGHT",
    "an experiment that is none",
)
put("finite-measured", "value", "measurements/loss", "nan", "NaN as a word, in a pass")
put(
    "finite-measured--infinity",
    "value",
    "measurements/errors",
    {"max": ["0.1", "-Infinity"]},
    "infinity as a word",
)
put("words-supported", "value", "measurements/speedup", 1.8, "a speed-up from ranks on CPU")
put(
    "words-supported--simulated",
    "decision",
    "measurements/scaling_efficiency",
    0.93,
    "scaling from a simulation",
)
put("words-supported--smoke", "smoke", "measurements/tokens_per_s", 5100.0, "throughput from a smoke run")
put("words-supported--gpu", "value", "measurements/gpu_memory_bytes", 1 << 30, "GPU memory from ranks on CPU")


@lie("words-supported--strategy", "project", told="several nodes in a name, one host seen")
def _named(directory: Directory) -> None:
    named = "multi-node zero2"
    directory.records[0]["identity"] |= {"strategy": named, "workload": {"strategy": named}}


@lie("words-supported--label", "benchmark", told="a run of one host is labelled cross-node")
def _labelled(directory: Directory) -> None:
    directory.manifest["run_label"] = "cross-node acceptance"


@lie(
    "communication-real",
    "value",
    told="claims of communication over a fake backend, at the level that follows",
)
def _fake(directory: Directory) -> None:
    in_run(directory, backend="fake")


@lie("communication-real--threads", "value", told="two ranks in one process")
def _threads(directory: Directory) -> None:
    ranks = copy.deepcopy(directory.records[0]["observation"]["runs"][0]["ranks"])
    ranks[1]["pid"] = ranks[0]["pid"]
    in_run(directory, ranks=ranks)


@lie(
    "communication-real--one-process", "smoke", told="one process that copies between its GPUs is called NCCL"
)
def _copies(directory: Directory) -> None:
    ranks = copy.deepcopy(directory.records[0]["observation"]["runs"][0]["ranks"])
    ranks[1]["pid"] = ranks[0]["pid"]
    in_run(directory, ranks=ranks)


@lie("communication-real--placement", "value", told="a placement group was created, and nothing sent")
def _placement(directory: Directory) -> None:
    in_run(directory, backend="ray", launcher="ray", calls_seen=0)
    directory.records[0]["communication"]["ledger"] = []


put(
    "overflow-counted",
    "moe",
    "measurements/routed_tokens_per_step_per_s",
    900.0,
    "a rate that counts what was dropped",
)
put("load-derived", "moe", "load/max_over_mean", 1.0, "a balance that the loads do not have")
put("load-derived--ranks", "moe", "load/per_rank", [6, 2, 4], "loads of more ranks than there were")


@lie("load-derived--alone", "moe", told="a balance without the loads it is of")
def _balance_alone(directory: Directory) -> None:
    directory.records[0]["load"]["per_rank"] = None
    directory.records[0]["not_collected"] = why_null(directory.records[0])


put("exposed-part", "trace", "time/exposed_s", 0.009, "more communication is exposed than there was")


@lie("exposed-part--sum", "trace", told="the sum of all kernels without what of it is exposed")
def _kernel_sum(directory: Directory) -> None:
    directory.records[0]["time"]["exposed_s"] = None
    directory.records[0]["not_collected"] = why_null(directory.records[0])


@lie("strategy-observed", "ring", told="attention that gathers is called a ring")
def _gathered(directory: Directory) -> None:
    record = directory.records[0]
    kept = record["communication"]["ledger"][0] | {"op": "all_gather", "calls": 2, "ranks": [0, 1]}
    record["communication"]["ledger"] = [kept]


@lie("project-own-result", "benchmark project", told="a project gives a mechanism's samples as its own")
def _cited(directory: Directory) -> None:
    mechanism, project = directory.records
    project["time"] = copy.deepcopy(mechanism["time"])
    for record in (mechanism, project):
        for run in record["observation"]["runs"]:
            run["ranks"] = copy.deepcopy(run["ranks"])
    for place, rank in enumerate(project["observation"]["runs"][0]["ranks"]):
        rank["pid"] = 5000 + place
    made_to_fit(project)


@lie("project-own-result--no-model", "value", told="a mechanism's record under a project's name")
def _renamed(directory: Directory) -> None:
    record = directory.records[0]
    record["identity"] |= {"semantic_id": "PAR-TRAINING-STATE", "claims": [], "tiers": []}
    made_to_fit(record)


@lie("project-own-result--page", "benchmark", told="a decision page with a benchmark of its own")
def _page(directory: Directory) -> None:
    record = directory.records[0]
    record["identity"] |= {"semantic_id": "PAR-STRATEGY-DECISION", "claims": [], "tiers": []}
    made_to_fit(record)


# -- traffic and time ------------------------------------------------------------------------------------------


@lie("ledger-complete", told="the group counted calls that the ledger did not see")
def _incomplete(directory: Directory) -> None:
    directory.records[1]["communication"]["ledger_complete"] = False
    directory.records[1]["observation"]["runs"][0]["ledger_complete"] = False


@lie("ledger-complete--unwatched", "ledger", told="a traffic claim of which no run ended well")
def _unwatched(directory: Directory) -> None:
    record = directory.records[0]
    _preflight(directory)
    record["communication"]["predicted"] = None
    made_to_fit(record)


@lie("ledger-matches-prediction", told="the ledger shows half of the predicted bytes")
def _half(directory: Directory) -> None:
    for line in directory.records[1]["communication"]["predicted"]["lines"]:
        line["in_bytes"] = line["out_bytes"] = 512


@lie("ledger-matches-prediction--more", "ledger", told="a call that nobody predicted")
def _one_more(directory: Directory) -> None:
    record = directory.records[0]
    record["communication"]["ledger"].append(record["communication"]["ledger"][0] | {"op": "all_gather"})
    in_run(directory, calls_seen=4)


put("observation-consistent", "", "observation/workload_id", "another", "another workload than the record's")
put(
    "observation-consistent--calls",
    "value",
    "observation/runs/0/calls_seen",
    900,
    "calls that are in no ledger",
)
put(
    "wire-modelled",
    "",
    "communication/wire_model/model",
    "payload, as on NCCL",
    "logical bytes are called network bytes",
)
put("wire-modelled--ranks", "value", "communication/wire_bytes", [4096], "wire bytes of one rank of two")


@lie("timing-repeated", told="one sample of each rank, the first")
def _once(directory: Directory) -> None:
    _samples(directory.records[2], [[0.2], [0.3]], warmup=0, median_s=0.3, p95_s=0.3)


def _samples(record: dict[str, Any], samples_s: list[list[float]], **told: Any) -> None:
    entry = record["time"]["measured"][0]
    entry |= {"samples_s": samples_s, "repeats": len(samples_s[0])} | told
    record["observation"] |= {"warmup": entry["warmup"], "repeats": entry["repeats"]}


@lie("timing-repeated--no-warm-up", "timing", told="repeated, and the first round is in it")
def _cold(directory: Directory) -> None:
    record = directory.records[0]
    _samples(record, record["time"]["measured"][0]["samples_s"], warmup=0)


@lie("timing-repeated--once", "timing", told="warm, and measured once")
def _single(directory: Directory) -> None:
    _samples(directory.records[0], [[0.2], [0.3]], median_s=0.3, p95_s=0.3)


@lie("timing-repeated--one-rank", "timing", told="samples of the faster rank only")
def _faster_rank(directory: Directory) -> None:
    _samples(directory.records[0], [[0.001, 0.002, 0.003]], median_s=0.002, p95_s=0.003)


put(
    "timing-derived--mean",
    "timing",
    "time/measured/0/median_s",
    0.001225,
    "the mean over ranks in place of the slowest",
)


@lie("timing-derived", told="a median that is not that of the samples")
def _median(directory: Directory) -> None:
    directory.records[2]["time"]["measured"][0]["median_s"] = 0.0001


@lie("timing-observed", told="repeats that were never made")
def _repeats(directory: Directory) -> None:
    directory.records[2]["observation"]["repeats"] = 400


def failed(record: dict[str, Any]) -> None:
    """The result was wrong, and a known defect."""
    failure = {"type": "AssertionError", "message": "wrong", "phase": "call", "rank": None}
    told = {"status": "failed", "correctness": "fail", "failure": failure}
    record["conclusion"] |= told | {"expected_nonconformance": "pytorch#1"}
    record["not_collected"] = why_null(record)


@lie("timing-after-correctness", told="the result was wrong, the time is kept")
def _wrong_and_fast(directory: Directory) -> None:
    failed(directory.records[2])


@lie("timing-after-correctness--exposed", "trace", told="the result was wrong, its exposed time is kept")
def _wrong_and_exposed(directory: Directory) -> None:
    record = directory.records[0]
    record["time"]["measured"] = None
    record["observation"] |= {"warmup": None, "repeats": None}
    made_to_fit(record)
    failed(record)


@lie("flaky-named")
def unnamed_flaky(directory: Directory) -> None:
    """A test failed, was run again and passed; both are counted as they should, and nobody names it."""
    failed = directory.records[0]
    again = copy.deepcopy(failed) | {"attempt": 2}
    directory.records.append(again)
    failed["conclusion"] |= {
        "status": "failed",
        "correctness": "fail",
        "failure": {"type": "AssertionError", "message": "rank 1 of 2: differs", "phase": "call", "rank": 1},
    }
    del failed["not_collected"]["conclusion.failure"]
    directory.manifest |= {"exit_status": 1}


# -- what else follows -----------------------------------------------------------------------------------------

put(
    "observation-consistent--strategy",
    "project",
    "identity/strategy",
    "zero3",
    "another strategy than was run",
)
put(
    "observation-consistent--rank",
    "ledger",
    "communication/ledger/0/ranks",
    [0, 64],
    "a rank that was not there",
)
put(
    "observation-consistent--off",
    "value",
    "observation/runs/0/ledger",
    False,
    "calls seen by a ledger that was off",
)
put("claims-registered--page", "value", "identity/page", "81", "another page than the experiment's")
put(
    "decision-needs-comparison--reason",
    "value",
    "conclusion/decision_reason",
    "clearly faster",
    "a verdict as a reason",
)


@lie("required-claims--one-attempt", told="a required claim was skipped once, and passed in another attempt")
def _skipped_once(directory: Directory) -> None:
    passed = copy.deepcopy(directory.records[1])
    _only_skipped(directory)
    directory.records.append(passed | {"attempt": 2})
    directory.manifest |= {"flaky": [passed["identity"]["nodeid"]]}
