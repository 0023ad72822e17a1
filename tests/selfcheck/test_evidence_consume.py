"""A consumer takes only what sealed records of its producers support: equal workloads, right results, the right level."""

import dataclasses
import json
import platform
import zlib

import pytest

from parproof import registry
from parproof.cli import main
from parproof.errors import UsageError
from parproof.evidence.consume import ANSWERS, answered_risks, consume
from parproof.evidence.record import Outcome, build
from parproof.evidence.store import EvidenceStore
from parproof.subjects.decision_protocol import SIGNALS, Constraints, Situation
from parproof.subjects.reference.decision import Decision

pytestmark = pytest.mark.selfcheck
DECISION = "PAR-STRATEGY-DECISION"
# Who measures a plan, in which role, the risk that this answers, and what presses where the plan is the only best one.
# Typed from the page: neither from the registry's edges nor from the mapping under test.
PAGE = {
    "dp_zero": ("PAR-ZERO-STATE", "state_sharding", "inspect_collective_frequency", "state_memory"),
    "pp": ("PAR-PIPELINE-SCHEDULE", "layer_split", "inspect_bubble_and_stage_balance", "activation_memory"),
    "tp": ("PAR-TENSOR-LAYOUT", "tensor_split", "inspect_all_reduce_exposure", "pipeline_bubble"),
    "ep": ("PAR-EXPERT-DISPATCH", "expert_split", "inspect_expert_load_and_all_to_all", "load_imbalance"),
    "cp": ("PAR-CONTEXT-RING", "sequence_split", "inspect_sequence_collective_exposure", "long_context"),
    "replica": (
        "PAR-REPLICA-ROUTING",
        "request_split",
        "inspect_queue_balance_and_cache_locality",
        "serving_queue",
    ),
}
NEEDS = {
    "tp": {"large_linear_layer": True, "strong_interconnect": True},
    "ep": {"has_moe": True},
    "cp": {"long_context": True},
    "replica": {"serving_workload": True},
}


def on_gpus(gpus=2):
    """A run of NCCL ranks on GPUs of one host."""
    ranks = [
        {
            "rank": r,
            "local_rank": r,
            "pid": 9 + r,
            "host": "host0",
            "hostname": platform.node(),
            "device": f"cuda:{r}",
        }
        for r in range(gpus)
    ]
    facts = {"launcher": "local", "backend": "nccl", "world_size": gpus, "ranks": ranks, "host_kind": "real"}
    return facts | {"num_reports": gpus, "calls_seen": 0, "ledger": True, "ledger_complete": None}


def timed(producer, place):
    """Samples of its own for each record: the same ones twice would be counted once."""
    first_s = zlib.crc32(f"{producer} {place}".encode()) / 2**20
    return [{"name": "step", "samples_s": [[first_s, 0.2], [0.2, 0.1]], "warmup": 1}]


def benchmarks(producer, **changes):
    """One record for each claim of a producer, as a benchmark of one workload."""
    claims = [claim.id for claim in registry.load().experiment(producer).claims]
    return [
        Outcome(
            f"test_{producer}.py::test_{claim}",
            "ok",
            0.1,
            **(
                {
                    "experiment": producer,
                    "claims": (claim,),
                    "lane": "cuda2",
                    "workload_id": "w",
                    "workload": {"b": 1},
                }
                | {"runs": [(on_gpus(), [(), ()])], "times": timed(producer, place), "model": "m"}
                | changes
            ),
        )
        for place, claim in enumerate(claims)
    ]


@pytest.fixture
def sealed(tmp_path):
    """Write outcomes as a sealed directory."""

    def write(*outcomes, name="evidence"):
        store = EvidenceStore(tmp_path / name, root=tmp_path, command=["pytest"], label="")
        store.open()
        written = [store.add(build(outcome)) for outcome in outcomes]
        ends = [record["conclusion"] for record in written]
        bad = any(e["status"] in ("failed", "blocked") and not e["expected_nonconformance"] for e in ends)
        collected = [record["identity"]["nodeid"] for record in written]
        store.seal(
            collected=collected, num_deselected=0, collection_errors=[], exit_status=int(bad), complete=True
        )
        return tmp_path / name

    return write


def of(consumed, producer):
    """The verdict on one producer."""
    return next(edge for edge in consumed if edge.producer == producer)


def test_benchmarks_of_one_workload_answer_their_risk(sealed):
    """And no other."""
    found = consume(sealed(*benchmarks("PAR-ZERO-STATE")), DECISION)
    assert of(found, "PAR-ZERO-STATE").usable, of(found, "PAR-ZERO-STATE")
    assert answered_risks(found) == {"inspect_collective_frequency"}
    assert of(found, "PAR-TENSOR-LAYOUT").reason == "no record that ran"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": None}, "level gpu_smoke, real_benchmark is needed"),
        ({"times": []}, "level gpu_smoke"),
        ({"runs": [(on_gpus(1), [()])], "times": []}, "level gpu_smoke"),
    ],
    ids=["no_model", "no_repeats", "one_gpu"],
)
def test_a_level_below_a_benchmark_answers_nothing(change, reason, sealed):
    """Smoke does not turn into benchmark by being consumed."""
    verdict = of(consume(sealed(*benchmarks("PAR-ZERO-STATE", **change)), DECISION), "PAR-ZERO-STATE")
    assert not verdict.usable
    assert reason in verdict.reason


def test_evidence_that_was_edited_is_not_consumed(sealed):
    """Nothing is read from what does not pass its audit."""
    directory = sealed(*benchmarks("PAR-ZERO-STATE"))
    path = directory / "records.jsonl"
    path.write_text(path.read_text().replace('"w"', '"v"'))
    with pytest.raises(UsageError, match="audit"):
        consume(directory, DECISION)


def test_each_role_answers_the_risk_of_its_own_plan():
    """Entry by entry, and each role is held by the mechanism that measures the plan."""
    assert {role: risk for _, role, risk, _ in PAGE.values()} == ANSWERS
    producers = {edge.role: edge.producer for edge in registry.load().edges if edge.consumer == DECISION}
    assert {role: producers[role] for role in ANSWERS} == {role: who for who, role, _, _ in PAGE.values()}


def advised(plan, directory):
    """The best candidate and the decision, where only this plan's risk is in doubt, after consuming a directory."""
    signals = {name: 0.9 if name == PAGE[plan][3] else 0.1 for name in SIGNALS}
    limits = Constraints(model_fits_single_gpu=True, **NEEDS.get(plan, {}))
    closed = answered_risks(consume(directory, DECISION))
    found = Decision().advise(Situation(signals, limits, closed))
    return found.candidates[0].plan, found.candidates[0].open_risk, found.decision


@pytest.mark.parametrize("plan", PAGE)
def test_the_evidence_of_a_plan_and_of_no_other_lets_it_be_accepted(plan, sealed):
    """With benchmarks of all five others the risk stays open; with those of its own mechanism alone it is closed."""
    own, _, risk, _ = PAGE[plan]
    others = [one for producer, *_ in PAGE.values() if producer != own for one in benchmarks(producer)]
    elsewhere = sealed(*others, name="others")
    assert len(answered_risks(consume(elsewhere, DECISION))) == len(PAGE) - 1
    assert advised(plan, elsewhere) == (plan, risk, "tune")
    assert advised(plan, sealed(*benchmarks(own))) == (plan, None, "accept")


def failing(outcome):
    """The same test with a wrong result."""
    failure = {"type": "AssertionError", "message": "wrong", "phase": "call", "rank": None}
    return dataclasses.replace(outcome, status="failed", failure=failure, times=[])


def listed(outcome, **changes):
    """The same test with a wrong result that is a listed defect."""
    return dataclasses.replace(failing(outcome), expected_nonconformance="pytorch#1: adds up", **changes)


def test_a_listed_defect_elsewhere_is_told_and_not_held_against_a_workload(sealed):
    """It was met on another workload, in a lane that reaches no benchmark."""
    elsewhere = {"lane": "cpu", "workload": {"b": 2}, "runs": [], "nodeid": "test_other.py::test_defect"}
    made = benchmarks("PAR-ZERO-STATE")
    verdict = of(consume(sealed(*made, listed(made[0], **elsewhere)), DECISION), "PAR-ZERO-STATE")
    assert verdict.usable
    assert verdict.reason == "10 records of real_benchmark or above; wrong on other workloads, as listed: 1"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda made: [dataclasses.replace(made[0], workload={"b": 2}), *made[1:]], "unequal workloads: "),
        (lambda made: made + benchmarks("PAR-CONTEXT-RING", workload={"b": 2}), "between producers"),
        (lambda made: [failing(made[0]), *made[1:]], "correctness"),
        (
            lambda made: [*made, listed(made[0], nodeid="t.py::test_d")],
            "is wrong, if as listed: pytorch#1: adds up",
        ),
        (lambda made: [*made, listed(made[0], nodeid="t.py::test_d", runs=[], lane="cpu")], "if as listed"),
        (lambda made: [dataclasses.replace(one, model=None) for one in made], "level gpu_smoke"),
        (lambda made: made[1:], "claims C1 were not shown"),
    ],
    ids=["workload", "workload_of_another", "correctness", "defect", "defect_on_cpu", "level", "claim"],
)
def test_refused_evidence_leaves_the_risk_open(spoil, reason, sealed):
    """The planner goes on tuning, for the same plan that good evidence lets it accept."""
    directory = sealed(*spoil(benchmarks("PAR-ZERO-STATE")))
    assert reason in of(consume(directory, DECISION), "PAR-ZERO-STATE").reason
    assert answered_risks(consume(directory, DECISION)) == frozenset()
    assert advised("dp_zero", directory) == ("dp_zero", "inspect_collective_frequency", "tune")


def test_the_command_line_says_what_may_be_used_and_why_not_more(sealed, capsys):
    """0 when every edge is usable, 1 when one is not, 2 for an unknown consumer."""
    directory = sealed(*benchmarks("PAR-ZERO-STATE"))
    assert main(["consume", str(directory), "--for", DECISION, "--json"]) == 1
    rows = {row["producer"]: row["usable"] for row in json.loads(capsys.readouterr().out)}
    assert rows["PAR-ZERO-STATE"]
    assert not rows["PAR-TENSOR-LAYOUT"]
    assert main(["consume", str(directory), "--for", "PAR-ZERO-STATE"]) == 2


def test_the_command_line_says_which_risks_are_answered(sealed, capsys):
    """For a reader in one line, for a program beside each edge; none is said too."""
    good = sealed(*benchmarks("PAR-ZERO-STATE"))
    smoke = sealed(*benchmarks("PAR-ZERO-STATE", model=None), name="smoke")
    main(["consume", str(good)])
    assert capsys.readouterr().out.endswith("\nanswered risks: inspect_collective_frequency\n")
    main(["consume", str(smoke)])
    assert capsys.readouterr().out.endswith("\nanswered risks: none\n")
    main(["consume", str(good), "--json"])
    answers = {row["producer"]: row["answers"] for row in json.loads(capsys.readouterr().out)}
    assert {who: risk for who, risk in answers.items() if risk} == {
        "PAR-ZERO-STATE": "inspect_collective_frequency"
    }
