"""The bound on draws refuses right routers with the chance it says, and how far off a router may be."""

import itertools
import math
import random
from collections import Counter

import pytest

from parproof.checks import replica_chance
from parproof.oracles import replica as oracle

pytestmark = pytest.mark.selfcheck


@pytest.mark.parametrize(("drawn", "share"), [(60, 1 / 6), (60, 1 / 2), (90, 1 / 36)])
@pytest.mark.parametrize("most", [1.0, 3.0, 8.0])
def test_a_count_surprises_as_seldom_as_the_bound_says(most, drawn, share):
    """By the exact binomial distribution: at most exp(−most) on each side."""
    far = [seen for seen in range(drawn + 1) if replica_chance.surprise(seen, drawn, share) > most]
    chance = sum(math.comb(drawn, k) * share**k * (1 - share) ** (drawn - k) for k in far)
    assert 0 < chance <= 2 * math.exp(-most)


def test_shares_are_those_of_all_pairs():
    """Of four: three, two, one and none of six."""
    shares = [oracle.two_choices_share(4, place) for place in range(4)]
    assert shares == [3 / 6, 2 / 6, 1 / 6, 0]
    assert [oracle.two_choices_share(2, place) for place in range(2)] == [1, 0]


def test_what_can_never_be_is_infinitely_surprising():
    """The longest wait wins of no two replicas."""
    assert replica_chance.surprise(1, 1000, 0.0) == math.inf
    assert replica_chance.surprise(0, 1000, 0.0) == 0.0


def test_a_right_router_of_another_generator_is_nowhere_near_the_bound():
    """Forty of them, drawn in another way than the reference draws."""
    order, most = (0, 1, 2, 3), replica_chance.limit(13 * 20)
    worst = 0.0
    for seed in range(40):
        draw = random.Random(1000 + seed).choice
        chosen = [min(draw(list(itertools.combinations(order, 2)))) for _ in range(1024)]
        replica_chance.assert_shares(Counter(chosen), order, most)
        replica_chance.assert_unrelated(chosen, order, most)
        shares = [oracle.two_choices_share(4, place) for place in order]
        worst = max(
            worst,
            *(replica_chance.surprise(chosen.count(r), 1024, s) for r, s in zip(order, shares, strict=True)),
        )
    assert worst < most / 2


@pytest.mark.parametrize("last_pair", [1 / 12, 1.6 / 6])
def test_a_pair_drawn_half_as_often_or_over_half_as_often_again_is_refused(last_pair):
    """Of 1024 draws; nearer to its sixth it may pass."""
    count = round(1024 * last_pair)
    assert replica_chance.surprise(count, 1024, 1 / 6) > replica_chance.limit(13 * 20)
