"""The stream that ranks work off: its units add up, and it tells every pair of policies apart."""

import pytest

from parproof.oracles import replica as oracle
from parproof.subjects.reference import replica as reference
from parproof.subjects.replica_protocol import POLICIES, REASONS, RoutingRules
from parproof.workloads.replica import PREFIX_UNITS, cold, real_work, unit_codes

pytestmark = pytest.mark.selfcheck
RULES = RoutingRules()


def served_by(policy, num_replicas):
    """What the reference makes of the stream."""
    return reference.ReplicaRouting().simulate(real_work(), cold(num_replicas), policy, RULES)


def test_a_prefix_is_as_long_for_every_request_and_what_a_hit_saves():
    """Otherwise a replica could not use what it holds, or would save another share than the router counts on."""
    for request in real_work():
        shared, codes = PREFIX_UNITS[request.prefix_key], unit_codes(request)
        assert len(codes) == request.service_ms
        assert set(codes[shared:]) == {request.request_id}
        if request.prefix_key:
            assert shared == pytest.approx(request.service_ms * (1 - RULES.hit_factor), rel=1e-12)


def test_four_policies_place_it_in_four_ways():
    """On three replicas; on two, both choices of power_of_two are the fleet."""
    placed = {policy: tuple(one.replica_id for one in served_by(policy, 3)) for policy in POLICIES}
    assert len(set(placed.values())) == len(POLICIES), placed


def test_every_reason_occurs_with_hits_and_misses():
    """A branch that no request takes would be judged by nobody."""
    served = [one for policy in POLICIES for n in (2, 3) for one in served_by(policy, n)]
    assert {one.reason for one in served} == set(REASONS)
    assert {one.hit for one in served} == {True, False}


def test_the_answer_depends_on_every_unit_and_its_order():
    """Products of matrices do not commute, so a hit on the wrong prefix shows."""
    codes = [7, 7, 1, 2]
    right = oracle.answer(codes, dim=8, modulus=97)
    others = [[7, 1, 2], [1, 7, 7, 2], [7, 7, 2, 1], [8, 7, 1, 2]]
    assert right not in {oracle.answer(other, dim=8, modulus=97) for other in others}
