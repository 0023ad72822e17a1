"""Mutants of PAR-REPLICA-ROUTING: the reference router with one lie each (the catalogue says which)."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Sequence
from typing import Any

from parproof.errors import InvalidPlan
from parproof.subjects.protocol import Subject
from parproof.subjects.reference.replica import ReplicaRouting
from parproof.subjects.replica_protocol import ReplicaState, Request, RoutingMetrics, RoutingRules, Served


def _subject(kind: type) -> Subject:
    return Subject(name=kind.__name__.lower(), mechanisms={"replica": f"{__name__}:{kind.__name__}"})


class NegativeWait(ReplicaRouting):
    def shortest(self, fleet: Any, request: Request, among: Any) -> int:
        return int(min(among, key=lambda r: (r.available_ms - request.arrival_ms, r.index)).index)


class LastWinsTies(ReplicaRouting):
    def shortest(self, fleet: Any, request: Request, among: Any) -> int:
        return int(min(among, key=lambda r: (r.wait_ms(request), -r.index)).index)


class CountsRequests(ReplicaRouting):
    def queue_aware(self, fleet: Any, request: Request) -> tuple[int, str]:
        counts = fleet.__dict__.setdefault("counts", [0] * len(fleet.replicas))
        index = counts.index(min(counts))
        counts[index] += 1
        return index, "shortest_queue"


class StrictSlack(ReplicaRouting):
    def locality_aware(self, fleet: Any, request: Request) -> tuple[int, str]:
        rules = fleet.rules
        fleet.rules = dataclasses.replace(rules, slack_ms=rules.slack_ms - 1e-9)
        chosen = super().locality_aware(fleet, request)
        fleet.rules = rules
        return chosen


class SlackInWholeMs(ReplicaRouting):
    def locality_aware(self, fleet: Any, request: Request) -> tuple[int, str]:
        rules = fleet.rules
        fleet.rules = dataclasses.replace(rules, slack_ms=float(round(rules.slack_ms)))
        chosen = super().locality_aware(fleet, request)
        fleet.rules = rules
        return chosen


class IgnoresSlack(ReplicaRouting):
    def locality_aware(self, fleet: Any, request: Request) -> tuple[int, str]:
        rules = fleet.rules
        fleet.rules = dataclasses.replace(rules, slack_ms=float("inf"))
        chosen = super().locality_aware(fleet, request)
        fleet.rules = rules
        return chosen


class StuckSession(ReplicaRouting):
    def locality_aware(self, fleet: Any, request: Request) -> tuple[int, str]:
        owner = fleet.owner_of_session.get(request.session_id)
        return (owner, "sticky_session") if owner is not None else super().locality_aware(fleet, request)


class ForgetsPrefixes(ReplicaRouting):
    def remember(self, fleet: Any, target: Any, request: Request) -> None:
        if request.session_id:
            fleet.owner_of_session[request.session_id] = target.index


class FirstOwnerForEver(ReplicaRouting):
    def remember(self, fleet: Any, target: Any, request: Request) -> None:
        if request.prefix_key:
            target.prefixes.add(request.prefix_key)
        if request.session_id:
            fleet.owner_of_session.setdefault(request.session_id, target.index)


class EmptyPrefixHits(ReplicaRouting):
    def is_hit(self, target: Any, request: Request) -> bool:
        return not request.prefix_key or request.prefix_key in target.prefixes


class HitIsFree(ReplicaRouting):
    def service_ms(self, fleet: Any, request: Request, hit: bool) -> float:
        return request.service_ms


class SubtractsTheFactor(ReplicaRouting):
    def service_ms(self, fleet: Any, request: Request, hit: bool) -> float:
        return request.service_ms * (1.0 - fleet.rules.hit_factor if hit else 1.0)


class RemembersLastTime(ReplicaRouting):
    turn = 0

    def round_robin(self, fleet: Any, request: Request) -> tuple[int, str]:
        fleet.turn = self.turn
        chosen = super().round_robin(fleet, request)
        type(self).turn = fleet.turn
        return chosen


class GivenOrder(ReplicaRouting):
    def order(self, requests: Sequence[Request]) -> list[Request]:
        return list(requests)


class DropsTheLast(ReplicaRouting):
    def order(self, requests: Sequence[Request]) -> list[Request]:
        return super().order(requests)[: max(1, len(requests) - 1)]


class RetriesTwice(ReplicaRouting):
    def order(self, requests: Sequence[Request]) -> list[Request]:
        ordered = super().order(requests)
        return ordered + ordered[-1:]


class SortsInPlace(ReplicaRouting):
    def order(self, requests: Sequence[Request]) -> list[Request]:
        assert isinstance(requests, list)
        requests.sort(key=lambda r: (r.arrival_ms, r.request_id))
        return list(requests)


class SameTwice(ReplicaRouting):
    def power_of_two(self, fleet: Any, request: Request) -> tuple[int, str]:
        return fleet.random.choice(fleet.replicas).index, "two_choices"


class FirstTwoOnly(ReplicaRouting):
    def power_of_two(self, fleet: Any, request: Request) -> tuple[int, str]:
        return self.shortest(fleet, request, fleet.replicas[:2]), "two_choices"


class TwoLightest(ReplicaRouting):
    def power_of_two(self, fleet: Any, request: Request) -> tuple[int, str]:
        ranked = sorted(fleet.replicas, key=lambda r: (r.wait_ms(request), r.index))
        return fleet.random.choice((ranked[:-1] or ranked)[:2]).index, "two_choices"


class BestAndSecondInTurn(ReplicaRouting):
    def power_of_two(self, fleet: Any, request: Request) -> tuple[int, str]:
        fleet.turn += 1
        ranked = sorted(fleet.replicas, key=lambda r: (r.wait_ms(request), r.index))
        pool = ranked[:-1] or ranked
        return pool[fleet.turn % len(pool)].index, "two_choices"


class NeighboursOnly(ReplicaRouting):
    def power_of_two(self, fleet: Any, request: Request) -> tuple[int, str]:
        pool = fleet.replicas
        first = fleet.random.randrange(len(pool))
        return self.shortest(fleet, request, [pool[first], pool[(first + 1) % len(pool)]]), "two_choices"


class PairsInTurn(ReplicaRouting):
    """From a place that the seed draws."""

    def power_of_two(self, fleet: Any, request: Request) -> tuple[int, str]:
        pairs = list(itertools.combinations(fleet.replicas, 2)) or [fleet.replicas]
        if not fleet.turn:
            fleet.turn, fleet.pairs = fleet.random.randrange(10**6), fleet.random.sample(pairs, len(pairs))
        fleet.turn += 1
        return self.shortest(fleet, request, fleet.pairs[fleet.turn % len(pairs)]), "two_choices"


class OwnEntropy(ReplicaRouting):
    def power_of_two(self, fleet: Any, request: Request) -> tuple[int, str]:
        fleet.random = _ENTROPY
        return super().power_of_two(fleet, request)


class OneSeedForAll(ReplicaRouting):
    def power_of_two(self, fleet: Any, request: Request) -> tuple[int, str]:
        if not fleet.turn:
            fleet.turn, fleet.random = 1, random.Random(0)
        return super().power_of_two(fleet, request)


_ENTROPY = random.SystemRandom()


class AlwaysQueues(ReplicaRouting):
    def locality_aware(self, fleet: Any, request: Request) -> tuple[int, str]:
        return self.queue_aware(fleet, request)


class StartsBusy(ReplicaRouting):
    def serve(self, fleet: Any, request: Request, policy: str) -> Served:
        made = super().serve(fleet, request, policy)
        return dataclasses.replace(
            made, start_ms=request.arrival_ms, finish_ms=request.arrival_ms + made.finish_ms - made.start_ms
        )


class FloorsTheRank(ReplicaRouting):
    def percentile(self, ascending: Sequence[float], share: float) -> float:
        return ascending[int(share * (len(ascending) - 1))]


class Interpolates(ReplicaRouting):
    def percentile(self, ascending: Sequence[float], share: float) -> float:
        place = share * (len(ascending) - 1)
        low = int(place)
        high = min(low + 1, len(ascending) - 1)
        return ascending[low] + (ascending[high] - ascending[low]) * (place - low)


class LoadByCount(ReplicaRouting):
    def metrics(self, requests: Any, replicas: Any, served: Sequence[Served]) -> RoutingMetrics:
        counts = [sum(s.replica_id == r.replica_id for s in served) for r in replicas]
        made = super().metrics(requests, replicas, served)
        return dataclasses.replace(made, max_over_mean_work=max(counts) * len(counts) / sum(counts))


class ClockFromFirstStart(ReplicaRouting):
    def metrics(self, requests: Any, replicas: Any, served: Sequence[Served]) -> RoutingMetrics:
        made = super().metrics(requests, replicas, served)
        span = max(s.finish_ms for s in served) - min(s.start_ms for s in served)
        return dataclasses.replace(made, throughput_per_s=len(served) * 1000.0 / span, makespan_ms=span)


class AcceptsAnything(ReplicaRouting):
    def simulate(
        self, requests: Sequence[Request], replicas: Sequence[ReplicaState], policy: str, rules: RoutingRules
    ) -> list[Served]:
        try:
            return super().simulate(requests, replicas, policy, rules)
        except InvalidPlan:
            return []


negative_wait = _subject(NegativeWait)
last_wins_ties = _subject(LastWinsTies)
counts_requests = _subject(CountsRequests)
strict_slack = _subject(StrictSlack)
slack_in_whole_ms = _subject(SlackInWholeMs)
ignores_slack = _subject(IgnoresSlack)
stuck_session = _subject(StuckSession)
forgets_prefixes = _subject(ForgetsPrefixes)
first_owner_for_ever = _subject(FirstOwnerForEver)
empty_prefix_hits = _subject(EmptyPrefixHits)
hit_is_free = _subject(HitIsFree)
subtracts_the_factor = _subject(SubtractsTheFactor)
remembers_last_time = _subject(RemembersLastTime)
given_order = _subject(GivenOrder)
drops_the_last = _subject(DropsTheLast)
retries_twice = _subject(RetriesTwice)
sorts_in_place = _subject(SortsInPlace)
same_twice = _subject(SameTwice)
first_two_only = _subject(FirstTwoOnly)
two_lightest = _subject(TwoLightest)
best_and_second_in_turn = _subject(BestAndSecondInTurn)
neighbours_only = _subject(NeighboursOnly)
pairs_in_turn = _subject(PairsInTurn)
own_entropy = _subject(OwnEntropy)
one_seed_for_all = _subject(OneSeedForAll)
always_queues = _subject(AlwaysQueues)
starts_busy = _subject(StartsBusy)
floors_the_rank = _subject(FloorsTheRank)
interpolates = _subject(Interpolates)
load_by_count = _subject(LoadByCount)
clock_from_first_start = _subject(ClockFromFirstStart)
accepts_anything = _subject(AcceptsAnything)
