"""Checks of a fleet of ranks that did the work: answers, caches and counters against the plan, latencies as measured."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from parproof.checks.ledger import assert_ledger
from parproof.checks.replica import assert_decisions, assert_schedule, work_ms
from parproof.cost.traffic import Traffic
from parproof.oracles import replica as oracle
from parproof.programs.replica import MODULUS, WORK_DIM
from parproof.ranks.run import Run
from parproof.subjects.replica_protocol import Request, RoutingRules, Served
from parproof.workloads.replica import cold, unit_codes


def assert_work(run: Run, requests: Sequence[Request], policy: str, rules: RoutingRules) -> list[Served]:
    """The plan follows from the policy; every rank did its part of it and no more. Returns the plan."""
    __tracebackhide__ = True
    served, fleet = run.results[0]["served"], cold(run.world_size)
    assert_schedule(served, requests, fleet, rules)
    assert_decisions(served, requests, fleet, policy, rules)
    planned = {one.request_id: one for one in served}
    answers = [oracle.answer(unit_codes(r), dim=WORK_DIM, modulus=MODULUS) for r in requests]
    work = work_ms(served, fleet)
    for rank, result in enumerate(run.results):
        where, ids = run.where(rank), range(len(requests))
        expected = {
            "plan": [planned[i].replica_id for i in ids],
            "times_served": [1] * len(requests),
            "hits": [int(planned[i].hit) for i in ids],
            "answers": answers,
        }
        for name, value in expected.items():
            assert result[name] == value, f"{where}: {name}: observed {result[name]}, expected {value}"
        assert math.isclose(result["units"], work[rank]), (
            f"{where}: {result['units']} units of work, {work[rank]} planned"
        )
    saved = sum(r.service_ms * (1.0 - rules.hit_factor) for r in requests if planned[r.request_id].hit)
    done, asked = sum(r["units"] for r in run.results), sum(r.service_ms for r in requests)
    assert math.isclose(done + saved, asked), f"{done} units done and {saved} saved of {asked} asked for"
    return list(served)


def assert_traffic(run: Run, num_requests: int, repeats: int) -> list[Traffic]:
    """A plan out and three numbers for each request back, in every repeat, and nothing else. Returns the prediction."""
    __tracebackhide__ = True
    plan, results = 8 * num_requests * repeats, 3 * 8 * num_requests * repeats
    predicted = [
        Traffic("broadcast", repeats, plan, plan, run.world_size, "dispatch"),
        Traffic("all_reduce", repeats, results, results, run.world_size, "collect"),
    ]
    for rank, rows in enumerate(run.ledgers):
        assert_ledger(rows, predicted, where=run.where(rank))
    return predicted


def as_measured(run: Run, requests: Sequence[Request], planned: Sequence[Served]) -> list[list[Served]]:
    """Of each repeat, the plan with the times that were measured, in ms since it arrived: one request at a time."""
    __tracebackhide__ = True
    repeats = []
    for repeat in range(len(run.results[0]["spans"])):
        spans = [result["spans"][repeat] for result in run.results]
        made = []
        for one in planned:
            start_s, end_s = spans[one.replica_id][one.request_id]
            made.append(dataclasses.replace(one, start_ms=start_s * 1e3, finish_ms=end_s * 1e3))
        for rank, of_rank in enumerate(spans):
            moments = [at for span in of_rank.values() for at in span]
            assert moments == sorted(moments), f"{run.where(rank)}: two requests at once: {of_rank}"
        repeats.append(made)
    return repeats


def busy_s(run: Run) -> list[list[float]]:
    """[rank][repeat] seconds from the arrival of the plan to the end of the rank's last request."""
    return [
        [max((end for _, end in spans.values()), default=0.0) for spans in result["spans"]]
        for result in run.results
    ]
