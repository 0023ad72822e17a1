"""Checks of chance in routing: who is drawn, how often, and that the seed decides it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from parproof.oracles import replica as oracle
from parproof.subjects.replica_protocol import ReplicaState, Served
from parproof.workloads.replica import EACH_PAIR_LAST, cold, waiting

REFUSED_BY_CHANCE = 1e-9
"""Probability that a router which draws as it should fails: over all counts of one stream of draws (docs/numerics.md)."""


def assert_seeded(placed: Callable[[int], Sequence[int]], seeds: Sequence[int]) -> None:
    """placed(seed): replicas of a stream. The same twice for one seed, and not the same for any two."""
    __tracebackhide__ = True
    streams = {}
    for seed in seeds:
        streams[seed], again = list(placed(seed)), list(placed(seed))
        if again != streams[seed]:
            place = next(i for i, (a, b) in enumerate(zip(streams[seed], again, strict=True)) if a != b)
            raise AssertionError(
                f"seed {seed}: request {place} went to replica {streams[seed][place]}, and to"
                f" {again[place]} when the same was asked again: the seed does not decide"
            )
    for one, other in combinations(seeds, 2):
        if streams[one] == streams[other]:
            raise AssertionError(f"seeds {one} and {other} place all {len(streams[one])} requests alike")


def assert_pairs_alike(
    placed: Callable[[Sequence[ReplicaState], int], Sequence[int]], seeds: Sequence[int]
) -> dict[str, float]:
    """Idle, and with each two of four replicas last by wait: shares, and choices in a row, over the seeds together.

    placed    (fleet, seed) → replica of each of an even number of requests
    returns   order by wait, shortest first → how often the last pair was drawn; 1/6 is expected
    """
    __tracebackhide__ = True
    fleets = [((0, 1, 2, 3), cold(4)), *((order, waiting(order)) for order in EACH_PAIR_LAST)]
    most = limit(len(fleets) * (4 + 4 * 4))
    shares = {}
    for order, fleet in fleets:
        chosen = [replica for seed in seeds for replica in placed(fleet, seed)]
        assert_shares(Counter(chosen), order, most)
        assert_unrelated(chosen, order, most)
        shares["".join(map(str, order))] = chosen.count(order[-2]) / len(chosen)
    return shares


def assert_shares(counts: Mapping[int, int], order: Sequence[int], most: float) -> None:
    """Of two different replicas drawn at random the one with the shorter wait serves: each place has its share.

    The last place has none, and the last but one only what the pair of the two is drawn.
    counts   replica → requests it served, while the waits kept their order
    order    replicas, shortest wait first
    most     surprise that is still let pass (`limit`)
    """
    __tracebackhide__ = True
    drawn = sum(counts.values())
    for place, replica in enumerate(order):
        share = oracle.two_choices_share(len(order), place)
        if surprise(counts.get(replica, 0), drawn, share) > most:
            raise AssertionError(
                f"replica {replica}, number {place + 1} of {len(order)} by wait: chosen {counts.get(replica, 0)} times"
                f" in {drawn}, expected about {share * drawn:.0f}: not the shorter wait of any two, all pairs alike"
            )


def assert_unrelated(served: Sequence[int], order: Sequence[int], most: float) -> None:
    """Two choices in a row have nothing to do with each other: a cycle through all pairs has the shares, and no chance."""
    __tracebackhide__ = True
    share = {r: oracle.two_choices_share(len(order), place) for place, r in enumerate(order)}
    rows = Counter(zip(served[::2], served[1::2], strict=False))
    drawn = len(served) // 2
    for first in order:
        for then in order:
            if surprise(rows[first, then], drawn, share[first] * share[then]) > most:
                raise AssertionError(
                    f"replica {then} follows {first} {rows[first, then]} times in {drawn},"
                    f" expected about {share[first] * share[then] * drawn:.0f}: one choice tells the next"
                )


def surprise(seen: int, drawn: int, share: float) -> float:
    """n · KL(seen/n ‖ share) in nats: exp(−it) bounds the chance of a count that far off, or farther, to its side."""
    total = 0.0
    for count, expected in ((seen, share * drawn), (drawn - seen, (1.0 - share) * drawn)):
        if count:
            total += count * math.log(count / expected) if expected else math.inf
    return total


def limit(num_counts: int) -> float:
    """The surprise that any of so many counts of a right router exceeds with a chance of REFUSED_BY_CHANCE in all."""
    return math.log(2 * num_counts / REFUSED_BY_CHANCE)


def placed(served: Sequence[Served]) -> list[int]:
    """Replica of each request, in order."""
    return [one.replica_id for one in served]
