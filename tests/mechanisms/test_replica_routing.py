"""PAR-REPLICA-ROUTING: which serving replica takes which request.

Question   How do queue length, cached prefixes and sessions trade off, and can a fixture tell the policies apart?
Baseline   round robin.
Candidate  --subject: queue_aware, locality_aware (prefix and session) and power_of_two choices.
Claims     C1  every choice and its reason follow from the policy's definition and what was served before.
           C2  any schedule serves each request once, in order of arrival, never early, never on a busy replica.
           C3  metrics equal their definitions: nearest-rank percentiles, load by work, not by count.
           C4  for every pair of policies there is a stream on which they decide differently.
           C5  queue_aware stays within (2 − 1/r) of the best makespan and gains from every further replica.
           C6  carried out on real ranks, under every policy, the plan has each request served once and meets the hits
               and the work it foretells; figures of what was measured follow their definitions.
           C7  what cannot be routed is refused by name.
Not shown  an engine's latency, cache or tail behaviour: the simulation has one clock, the ranks do integer products.
           A subject's own replicas: a subject gives plans and metrics, and C6 judges these. Who works them off (cache,
           products, answers, counts, traffic) is this suite's, so C6 fails by these only when the suite is wrong.
           That more work takes longer: seconds are those of products on shared cores; only percentiles are judged.
"""

import copy
import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parproof import checks, programs
from parproof.checks import replica_chance
from parproof.checks.replica import assert_decisions, assert_metrics, assert_schedule, work_ms
from parproof.errors import InvalidPlan
from parproof.oracles import replica as oracle
from parproof.subjects.replica_protocol import POLICIES, ReplicaState, Request, RoutingRules
from parproof.workloads.replica import (
    PAGE_COSTS,
    SLACKS,
    STREAMS,
    UNROUTABLE,
    burst,
    cold,
    four_requests,
    real_work,
    short_and_steady,
    warm_and_busy,
)

pytestmark = [pytest.mark.experiment("PAR-REPLICA-ROUTING"), pytest.mark.lanes("cpu")]

RULES = RoutingRules()
STATELESS = [HealthCheck.function_scoped_fixture]  # a router keeps nothing between two simulations
every_policy = pytest.mark.parametrize("policy", POLICIES)
every_stream = pytest.mark.parametrize("stream", STREAMS)
a_request = st.builds(
    Request,
    request_id=st.integers(0, 10_000),
    arrival_ms=st.integers(0, 60).map(float),
    service_ms=st.integers(1, 30).map(float),
    prefix_key=st.sampled_from(["", "p", "q"]),
    session_id=st.sampled_from(["", "s", "t"]),
)
a_stream = st.lists(a_request, min_size=1, max_size=14, unique_by=lambda r: r.request_id)
some_replicas = st.lists(
    st.tuples(st.integers(0, 40).map(float), st.frozensets(st.sampled_from("pq"))), min_size=1, max_size=4
).map(lambda made: [ReplicaState(7 - i, free, held) for i, (free, held) in enumerate(made)])


@pytest.fixture
def router(subject, lane):
    """The subject's implementation; the lane places the test among those that need no GPU."""
    return subject.make("replica")


@pytest.mark.claim("C1", "C2", "C3")
@every_policy
@every_stream
def test_c1_c2_c3_decisions_schedule_and_figures(stream, policy, router, evidence):
    """Each stream was made to separate policies; see workloads."""
    requests, replicas = STREAMS[stream](), cold(3)
    evidence.on("replica_stream", stream=stream, policy=policy, replicas=3)
    served = router.simulate(requests, replicas, policy, RULES)
    assert_schedule(served, requests, replicas, RULES)
    assert_decisions(served, requests, replicas, policy, RULES)
    metrics = router.metrics(requests, replicas, served)
    assert_metrics(metrics, requests, replicas, served)
    evidence.measured(
        mean_wait_ms=metrics.mean_wait_ms,
        p95_wait_ms=metrics.p95_wait_ms,
        p99_wait_ms=metrics.p99_wait_ms,
        work_per_replica_ms=work_ms(served, replicas),
        max_over_mean_work=metrics.max_over_mean_work,
        makespan_ms=metrics.makespan_ms,
    )


@pytest.mark.claim("C1")
@pytest.mark.parametrize("slack", SLACKS)
def test_c1_locality_waits_for_the_prefix_up_to_and_including_the_slack(slack, router):
    """The page's example: waits of 20 and 5 ms, the prefix on the busy replica."""
    rules = RoutingRules(slack_ms=SLACKS[slack])
    requests = [Request(0, 0.0, 10.0, "p")]
    (served,) = router.simulate(requests, warm_and_busy(), "locality_aware", rules)
    expected = (1, "queue_fallback") if SLACKS[slack] < 20 - 5 else (0, "prefix_locality")
    assert (served.replica_id, served.reason) == expected, f"replica {served.replica_id} ({served.reason})"


@pytest.mark.claim("C1")
def test_c1_two_choices_follow_the_seed(router):
    """Nothing else: not the clock, not what was simulated before."""

    def placed(seed):
        served = router.simulate(short_and_steady(64), cold(4), "power_of_two", RoutingRules(seed=seed))
        return replica_chance.placed(served)

    replica_chance.assert_seeded(placed, range(8))


@pytest.mark.claim("C1")
def test_c1_two_choices_draw_every_pair_alike(router, evidence):
    """Idle, and with any two replicas last: a thousand draws each, of four seeds, within a bound for right routers."""

    def placed(fleet, seed):
        served = router.simulate(short_and_steady(256), fleet, "power_of_two", RoutingRules(seed=seed))
        return replica_chance.placed(served)

    evidence.on("replica_draws", replicas=4, seeds=4)
    evidence.measured(share_of_last_pair=replica_chance.assert_pairs_alike(placed, range(4)))


@pytest.mark.claim("C2", "C3")
@every_policy
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=STATELESS)
@given(requests=a_stream, replicas=some_replicas)
def test_c2_c3_hold_for_any_stream_and_fleet(policy, router, requests, replicas):
    """Busy and warm replicas, equal arrivals, ids in any order; the inputs stay as they were."""
    before = copy.deepcopy((requests, replicas))
    served = router.simulate(requests, replicas, policy, RULES)
    assert (requests, replicas) == before, "the inputs were changed"
    assert_schedule(served, requests, replicas, RULES)
    assert_decisions(served, requests, replicas, policy, RULES)
    assert_metrics(router.metrics(requests, replicas, served), requests, replicas, served)


@pytest.mark.claim("C3")
@pytest.mark.parametrize(
    ("policy", "p95_wait_ms", "per_s", "hit_rate", "counts"),
    [
        ("round_robin", 18.0, 156.25, 0.5, [2, 2]),
        ("queue_aware", 14.0, 188.68, 0.25, [1, 3]),
        ("locality_aware", 14.0, 188.68, 0.25, [1, 3]),
    ],
)
def test_c3_four_requests_give_the_page_figures(policy, p95_wait_ms, per_s, hit_rate, counts, router):
    """At a slack of 10 ms, where two policies look alike; the defaults of slack and of what a hit saves are the page's."""
    assert (RULES.slack_ms, RULES.hit_factor) == (5.0, 0.7)
    served = router.simulate(four_requests(), cold(2), policy, RoutingRules(slack_ms=10.0))
    found = router.metrics(four_requests(), cold(2), served)
    figures = (found.p95_wait_ms, round(found.throughput_per_s, 2), found.hit_rate)
    assert figures == (p95_wait_ms, per_s, hit_rate), f"p95_wait_ms, throughput_per_s, hit_rate: {figures}"
    placed = [one.replica_id for one in served]
    assert sorted(placed.count(r) for r in range(2)) == counts, f"placed on {placed}, expected {counts}"


@pytest.mark.claim("C4")
@pytest.mark.parametrize("pair", list(itertools.combinations(POLICIES, 2)), ids="-".join)
def test_c4_some_stream_separates_every_pair_of_policies(pair, router):
    """Policies that never differ cannot be compared: the page's own fixture could not tell two of them apart."""

    def placements(policy):
        return [
            tuple(s.replica_id for s in router.simulate(make(), cold(3), policy, RULES))
            for make in STREAMS.values()
        ]

    assert placements(pair[0]) != placements(pair[1]), f"{pair[0]} and {pair[1]} place every request alike"


@pytest.mark.claim("C5")
def test_c5_the_page_costs_give_the_page_loads(router):
    """Round robin 6 and 26, least loaded 17 and 15, the best possible makespan 16."""

    def loads(policy):
        return work_ms(router.simulate(burst(), cold(2), policy, RULES), cold(2))

    assert loads("round_robin") == [6, 26]
    assert loads("queue_aware") == [17, 15], f"queue_aware loads {loads('queue_aware')}, expected [17, 15]"
    assert oracle.best_makespan(PAGE_COSTS, 2) == 16

    def makespan(policy):
        return router.metrics(burst(), cold(2), router.simulate(burst(), cold(2), policy, RULES)).makespan_ms

    ratio = makespan("round_robin") / makespan("queue_aware")
    assert ratio == 26 / 17, f"makespan ratio {ratio}, expected 26 / 17"


@pytest.mark.claim("C5")
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=STATELESS)
@given(costs=st.lists(st.integers(1, 20), min_size=1, max_size=7))
def test_c5_queue_aware_is_bounded_by_the_optimum_and_gains_from_replicas(router, costs):
    """Graham's bound for jobs in given order; independent jobs show none of his anomalies."""
    makespans = []
    for num_replicas in (1, 2, 3):
        served = router.simulate(burst(tuple(costs)), cold(num_replicas), "queue_aware", RULES)
        makespans.append(max(s.finish_ms for s in served))
        best = oracle.best_makespan(costs, num_replicas)
        assert best <= makespans[-1] <= (2 - 1 / num_replicas) * best, (
            f"makespan {makespans[-1]}, best {best}"
        )
    assert makespans == sorted(makespans, reverse=True), f"a further replica costs time: {makespans}"


@pytest.mark.claim("C3", "C6")
@every_policy
@pytest.mark.parametrize("world", [2, 3], ids="W{}".format)
def test_c3_c6_each_rank_serves_what_it_was_given(world, policy, ranks, subject, evidence):
    """A plan's hits and work, as caches on ranks have them; the suite's own answers and traffic; percentiles as measured."""
    subject.require("replica")
    requests, repeats = real_work(), 4
    evidence.on("replica_real_work", policy=policy, replicas=world)
    run = ranks(world).run(programs.replica.serve_for_real, subject, policy, requests, RULES, repeats)
    planned = checks.replica_ranks.assert_work(run, requests, policy, RULES)
    evidence.predict(checks.replica_ranks.assert_traffic(run, len(requests), repeats))
    router, at_once = subject.make("replica"), [replace(r, arrival_ms=0.0) for r in requests]
    found = []
    for served in checks.replica_ranks.as_measured(run, requests, planned):
        found.append(router.metrics(at_once, cold(world), served))
        assert_metrics(found[-1], at_once, cold(world), served)
    units = [result["units"] for result in run.results]
    balance = max(units) * world / sum(units)
    told = router.metrics(requests, cold(world), planned).max_over_mean_work
    assert math.isclose(told, balance, rel_tol=1e-12), f"max over mean {told}, of the units of work {balance}"
    evidence.figures(per_rank=units, max_over_mean=balance)
    evidence.timed("serve", [of_rank[1:] for of_rank in checks.replica_ranks.busy_s(run)], warmup=1)
    evidence.measured(
        p95_wait_ms=[m.p95_wait_ms for m in found[1:]],
        p99_wait_ms=[m.p99_wait_ms for m in found[1:]],
        spans_s=[result["spans"][1:] for result in run.results],
    )


@pytest.mark.claim("C7")
@pytest.mark.parametrize("name", UNROUTABLE)
def test_c7_what_cannot_be_routed_is_refused(name, router):
    """By name, not by an index error from inside or by a schedule that means nothing."""
    requests, replicas, policy, text = UNROUTABLE[name]
    with pytest.raises(InvalidPlan, match=text):
        router.simulate(requests, replicas, policy, RULES)
