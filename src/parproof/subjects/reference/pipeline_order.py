"""Which event comes next: a scheduler that plays all ranks in step and lets each take its most urgent ready event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from parproof.errors import InvalidPlan
from parproof.subjects.pipeline_protocol import PipelinePlan

WHERE = "pipeline plan"
V_SHAPED = ("zero_bubble_v", "dual_pipe_v")


class Work(NamedTuple):
    """One event: F, B, I or W of a stage and a micro-batch."""

    kind: str
    stage: int
    micro: int


class Scheduler:
    """Orders of all ranks for one plan. Subclasses change one rule at a time."""

    def __init__(self, plan: PipelinePlan, num_ranks: int) -> None:
        self.plan, self.p = plan, num_ranks
        self.m, self.v = plan.num_micro_batches, plan.stages_per_rank
        self.ranks = self.placement()

    def placement(self) -> list[int]:
        """Rank of each stage."""
        there = list(range(self.p))
        if self.plan.schedule in V_SHAPED:
            return there + there[::-1]
        return there * self.v

    def orders(self) -> list[list[Work]]:
        """One list of events for each rank."""
        listed: dict[str, Callable[[int], list[Work]]] = {
            "fill_drain": self._fill_drain,
            "breadth_first": self._breadth_first,
            "interleaved": self._interleaved,
            "dual_pipe_v": self._dual_pipe_v,
        }
        if self.plan.schedule in listed:
            return [listed[self.plan.schedule](rank) for rank in range(self.p)]
        return self._played()

    # -- fixed lists ---------------------------------------------------------------------------------------

    def _fill_drain(self, rank: int) -> list[Work]:
        return [Work(kind, rank, i) for kind in "FB" for i in range(self.m)]

    def _breadth_first(self, rank: int) -> list[Work]:
        mine = [s for s, owner in enumerate(self.ranks) if owner == rank]
        there = [Work("F", s, i) for s in mine for i in range(self.m)]
        return there + [work._replace(kind="B") for work in there[::-1]]

    def _interleaved(self, rank: int) -> list[Work]:
        """Forwards by (round, turn, micro-batch), backwards the same with turns reversed; 2 a rank of head start."""
        size = self.m // max(1, self.m // self.p)
        mine = [s for s, owner in enumerate(self.ranks) if owner == rank]
        keys = [(i // size, turn, i) for turn in range(self.v) for i in range(self.m)]
        forwards = [Work("F", mine[turn], i) for _, turn, i in sorted(keys)]
        backwards = [Work("B", mine[-1 - turn], i) for _, turn, i in sorted(keys)]
        lead = min(self.in_flight(rank) - 1, len(forwards))
        order = forwards[:lead]
        for k, backward in enumerate(backwards):
            order += [*forwards[lead + k : lead + k + 1], backward]
        return order

    def _dual_pipe_v(self, rank: int) -> list[Work]:
        """A forward beside every backward of the other stage, and weight gradients where a rank would wait."""
        near, far, behind = rank, 2 * self.p - 1 - rank, self.p - 1 - rank
        counts: Counter[tuple[bool, int]] = Counter()
        put_off: list[Work] = []
        order: list[Work] = []

        def add(kind: str, stage: int) -> None:
            key = kind == "F", stage
            order.append(Work(kind, stage, counts[key]))
            counts[key] += 1
            if kind == "I":
                put_off.append(order[-1]._replace(kind="W"))

        def both(forward: int, backward: int) -> None:
            add("F", forward)
            add("B", backward)

        for number in range(2 * behind + rank + 1):
            add("F", near)
            if number >= 2 * behind:
                add("F", far)
        for _ in range(behind):
            add("I", far)
            order.append(put_off.pop(0))
            add("F", far)
        for _ in range(self.m - counts[True, near]):
            both(near, far)
            both(far, near)
        for _ in range(behind):
            add("B", far)
            both(far, near)
        for number in range(2 * rank + 2):
            add("B" if number <= rank else "I", near if number % 2 else far)
        for _ in range(behind):
            order.append(put_off.pop(0))
            add("I", near)
        return order + put_off

    # -- played out ----------------------------------------------------------------------------------------

    def in_flight(self, rank: int) -> int:
        """Forwards whose activations a rank may hold at once."""
        late = self.p - rank
        size = self.m // max(1, self.m // self.p)
        return {
            "one_f_one_b": late,
            "interleaved": (self.v - 1) * size + 2 * (late - 1) + 1,
            "zero_bubble": self.p,
            "zero_bubble_v": 2 * self.p,
        }[self.plan.schedule]

    def urgency(self, work: Work) -> tuple[int, int, int]:
        """Smallest first: what others wait for goes before weights, which can wait.

        A forward goes first where there is room for it, in zero-bubble schedules, else a backward, which makes
        room; then the deeper stage, which is nearer to a backward, but in a V the older micro-batch.
        """
        kinds = "FIW" if self.plan.schedule.startswith("zero_bubble") else "BIFW"
        if self.plan.schedule == "zero_bubble_v":
            return kinds.index(work.kind), work.micro, work.stage
        return kinds.index(work.kind), -work.stage, work.micro

    def _played(self) -> list[list[Work]]:
        """All ranks take one event at a time, until nothing is left."""
        orders: list[list[Work]] = [[] for _ in range(self.p)]
        done: set[Work] = set()
        left = self._everything()
        while left:
            taken = [self._choice(rank, orders[rank], left, done) for rank in range(self.p)]
            if not any(taken):
                raise InvalidPlan(f"{len(left)} events can never run", where=WHERE)
            for rank, work in enumerate(taken):
                if work is not None:
                    orders[rank].append(work)
                    done.add(work)
                    left.discard(work)
        return orders

    def _everything(self) -> set[Work]:
        kinds = "FIW" if self.plan.schedule.startswith("zero_bubble") else "FB"
        return {Work(k, s, i) for k in kinds for s in range(len(self.ranks)) for i in range(self.m)}

    def _choice(self, rank: int, order: list[Work], left: set[Work], done: set[Work]) -> Work | None:
        live = sum((work.kind == "F") - (work.kind in "BW") for work in order)
        ahead = sum((work.kind == "F") - (work.kind in "BI") for work in order)
        ready = [
            work
            for work in left
            if self.ranks[work.stage] == rank and self._is_ready(work, done) and self._is_next(work, left)
        ]
        ready = [work for work in ready if work.kind != "F" or self.has_room(work, rank, live, ahead)]
        return min(ready, key=self.urgency, default=None)

    def has_room(self, work: Work, rank: int, live: int, ahead: int) -> bool:
        """May this forward start? `live` forwards wait for their weights' backward, `ahead` for their inputs'.

        zero_bubble starts no more than 1F1B does. zero_bubble_v fills its room with the oldest, of either stage.
        """
        has_room = live < self.in_flight(rank)
        return has_room and (self.plan.schedule != "zero_bubble" or ahead < self.p - rank)

    def _is_ready(self, work: Work, done: set[Work]) -> bool:
        kind, stage, micro = work
        if kind == "F":
            return stage == 0 or Work("F", stage - 1, micro) in done
        if kind == "W":
            return Work("I", stage, micro) in done
        is_last = stage == len(self.ranks) - 1
        return Work("F", stage, micro) in done and (is_last or Work(kind, stage + 1, micro) in done)

    def _is_next(self, work: Work, left: set[Work]) -> bool:
        """Micro-batches of one kind and stage keep their order."""
        return work.micro == 0 or work._replace(micro=work.micro - 1) not in left
