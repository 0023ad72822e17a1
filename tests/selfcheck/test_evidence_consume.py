"""A consumer takes only what sealed records of its producers support: equal workloads, right results, the right level."""

import dataclasses
import json
import platform

import pytest

from parproof import registry
from parproof.cli import main
from parproof.errors import UsageError
from parproof.evidence.consume import ANSWERS, answered_risks, consume
from parproof.evidence.record import Outcome, build
from parproof.evidence.store import EvidenceStore
from parproof.subjects.decision_protocol import RISK

pytestmark = pytest.mark.selfcheck
DECISION = "PAR-STRATEGY-DECISION"


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
    first_s = sum(producer.encode()) + place
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

    def write(*outcomes):
        store = EvidenceStore(tmp_path / "evidence", root=tmp_path, command=["pytest"], label="")
        store.open()
        written = [store.add(build(outcome)) for outcome in outcomes]
        bad = any(r["conclusion"]["status"] in ("failed", "blocked") for r in written)
        collected = [record["identity"]["nodeid"] for record in written]
        store.seal(
            collected=collected, num_deselected=0, collection_errors=[], exit_status=int(bad), complete=True
        )
        return tmp_path / "evidence"

    return write


def of(consumed, producer):
    """The verdict on one producer."""
    return next(edge for edge in consumed if edge.producer == producer)


def test_benchmarks_of_one_workload_answer_their_risk(sealed):
    """And no other."""
    found = consume(sealed(*benchmarks("PAR-ZERO-STATE")), DECISION)
    assert of(found, "PAR-ZERO-STATE").usable, of(found, "PAR-ZERO-STATE")
    assert answered_risks(found) == {RISK["dp_zero"]}
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


def test_a_failed_claim_refuses_the_producer(sealed):
    """Correctness comes before anything else is read."""
    good, *rest = benchmarks("PAR-ZERO-STATE")
    failure = {"type": "AssertionError", "message": "wrong", "phase": "call", "rank": None}
    bad = dataclasses.replace(good, status="failed", failure=failure, times=[])
    verdict = of(consume(sealed(bad, *rest), DECISION), "PAR-ZERO-STATE")
    assert "correctness" in verdict.reason


def test_a_claim_that_was_not_shown_refuses_the_producer(sealed):
    """A part of a mechanism is not the mechanism."""
    verdict = of(consume(sealed(*benchmarks("PAR-ZERO-STATE")[1:]), DECISION), "PAR-ZERO-STATE")
    assert "claims C1 were not shown" in verdict.reason


def test_unequal_workloads_are_refused_within_and_between_producers(sealed, tmp_path):
    """A bigger batch is another workload."""
    first, *rest = benchmarks("PAR-ZERO-STATE")
    other = dataclasses.replace(first, workload={"b": 2})
    verdict = of(consume(sealed(other, *rest), DECISION), "PAR-ZERO-STATE")
    assert "unequal workloads" in verdict.reason
    (tmp_path / "evidence").rename(tmp_path / "first")
    both = benchmarks("PAR-ZERO-STATE") + benchmarks("PAR-TENSOR-LAYOUT", workload={"b": 2})
    found = consume(sealed(*both), DECISION)
    assert "between producers" in of(found, "PAR-ZERO-STATE").reason
    assert answered_risks(found) == frozenset()


def test_evidence_that_was_edited_is_not_consumed(sealed):
    """Nothing is read from what does not pass its audit."""
    directory = sealed(*benchmarks("PAR-ZERO-STATE"))
    path = directory / "records.jsonl"
    path.write_text(path.read_text().replace('"w"', '"v"'))
    with pytest.raises(UsageError, match="audit"):
        consume(directory, DECISION)


def test_every_role_that_answers_a_risk_is_an_edge_of_the_decision_page():
    """And every plan's risk can be answered by somebody."""
    roles = {edge.role for edge in registry.load().edges if edge.consumer == DECISION}
    assert set(ANSWERS) <= roles
    assert set(ANSWERS.values()) == set(RISK.values())


def test_the_command_line_says_what_may_be_used_and_why_not_more(sealed, capsys):
    """0 when every edge is usable, 1 when one is not, 2 for an unknown consumer."""
    directory = sealed(*benchmarks("PAR-ZERO-STATE"))
    assert main(["consume", str(directory), "--for", DECISION, "--json"]) == 1
    rows = {row["producer"]: row["usable"] for row in json.loads(capsys.readouterr().out)}
    assert rows["PAR-ZERO-STATE"]
    assert not rows["PAR-TENSOR-LAYOUT"]
    assert main(["consume", str(directory), "--for", "PAR-ZERO-STATE"]) == 2
