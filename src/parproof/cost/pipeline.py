"""Pipeline schedules in closed form: bubbles, slots, live activations. Derived in docs/costs.md#pipeline.

p ranks, m micro-batches, v stages on each rank; s is a rank (of p) where v = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from parproof.cost.traffic import Traffic
from parproof.errors import InvalidPlan

FORWARD, BACKWARD, INPUT, WEIGHT = "F", "B", "I", "W"
V_SHAPED = ("zero_bubble_v", "dual_pipe_v")


class Event(NamedTuple):
    """One piece of work of one stage on one micro-batch.

    kind   F forward; B whole backward; I backward to the input, W backward to the weights (B split in two)
    """

    kind: str
    stage: int
    micro: int

    def __str__(self) -> str:
        return f"{self.kind}({self.stage},{self.micro})"


def check_sizes(num_ranks: int, num_micro: int, stages_per_rank: int = 1) -> None:
    """All three counts are positive."""
    for name, value in (
        ("ranks", num_ranks),
        ("micro-batches", num_micro),
        ("stages per rank", stages_per_rank),
    ):
        if value < 1:
            raise InvalidPlan(f"{value} {name}", expected="at least 1", where="pipeline schedule")


def placement(schedule: str, num_ranks: int, stages_per_rank: int) -> list[int]:
    """Rank of each stage: round and round (loop), or there and back (V) where two stages meet on one rank."""
    check_sizes(num_ranks, 1, stages_per_rank)
    ranks = list(range(num_ranks))
    placed: list[int] = []
    for turn in range(stages_per_rank):
        placed += ranks[::-1] if schedule in V_SHAPED and turn % 2 else ranks
    return placed


def forward_slots(num_ranks: int, num_micro: int) -> int:
    """Length of the forward timeline in equal slots: m + p − 1."""
    check_sizes(num_ranks, num_micro)
    return num_micro + num_ranks - 1


def training_slots(num_ranks: int, num_micro: int) -> int:
    """Forward and backward of fill-drain or 1F1B, all slots equal: 2(m + p − 1)."""
    return 2 * forward_slots(num_ranks, num_micro)


def bubble_ratio(num_ranks: int, num_micro: int, stages_per_rank: int = 1) -> Fraction:
    """Idle share of all slots: (p − 1)/(v·m + p − 1). Exact, so that it can be compared by equality."""
    check_sizes(num_ranks, num_micro, stages_per_rank)
    return Fraction(num_ranks - 1, stages_per_rank * num_micro + num_ranks - 1)


def efficiency(num_ranks: int, num_micro: int, stages_per_rank: int = 1) -> Fraction:
    """Busy share of all slots: v·m/(v·m + p − 1)."""
    check_sizes(num_ranks, num_micro, stages_per_rank)
    return Fraction(stages_per_rank * num_micro, stages_per_rank * num_micro + num_ranks - 1)


def peak_live(schedule: str, num_ranks: int, num_micro: int, rank: int) -> int:
    """Micro-batches whose activations a rank holds at the peak, one stage on each rank.

    fill_drain          m: nothing is released before the last forward
    one_f_one_b         min(m, p − s)
    greedy_backward     min(m, 2(p − s) − 1): backward first, but no limit on what is in flight
    zero_bubble         min(m, p): what 1F1B saves on late ranks is spent on weight gradients put off
    """
    check_sizes(num_ranks, num_micro)
    bounds = {
        "fill_drain": num_micro,
        "one_f_one_b": min(num_micro, num_ranks - rank),
        "greedy_backward": min(num_micro, 2 * (num_ranks - rank) - 1),
        "zero_bubble": min(num_micro, num_ranks),
    }
    if schedule not in bounds:
        raise InvalidPlan(f"no closed form for {schedule!r}", expected=f"one of {', '.join(bounds)}")
    return bounds[schedule]


def rank_live_limit(schedule: str, num_ranks: int, num_micro: int) -> int:
    """Stage activations (of either of its two stages) a rank of a V-shaped schedule may hold at once.

    zero_bubble_v   2p: as much memory as 1F1B needs on its first rank, for stages of half the size
    dual_pipe_v     2p + 1: one forward runs together with one backward
    """
    check_sizes(num_ranks, num_micro)
    limit = {"zero_bubble_v": 2 * num_ranks, "dual_pipe_v": 2 * num_ranks + 1}[schedule]
    return min(limit, 2 * num_micro)


def fill_drain_makespan_s(
    forward_s: Sequence[float], backward_s: Sequence[float], num_micro: int, transfer_s: float = 0.0
) -> float:
    """Unequal stages: the slowest stage sets the pace, the others are passed once each way.

    Σf + (m − 1)·max f, then the same of the backward, and 2(p − 1) transfers nobody works during.
    """
    check_sizes(len(forward_s), num_micro)
    once = sum(forward_s) + sum(backward_s) + 2 * (len(forward_s) - 1) * transfer_s
    return once + (num_micro - 1) * (max(forward_s) + max(backward_s))


def steady_period_s(forward_s: Sequence[float], backward_s: Sequence[float]) -> float:
    """Time between two micro-batches of a long 1F1B run without transfer time: the slowest stage's f + b."""
    return max(f + b for f, b in zip(forward_s, backward_s, strict=True))


def one_f_one_b_period_s(work_s: float, transfer_s: float, num_ranks: int) -> float:
    """1F1B with equal stages and transfers that take time: f + b + 2c(p − 1)/p.

    Rank 0 has p micro-batches in flight, and one needs p(f + b) + 2(p − 1)c to come back: the bound on memory
    is a bound on latency hiding. Fill-drain, which has no such bound, keeps the period f + b.
    """
    check_sizes(num_ranks, 1)
    return work_s + 2 * transfer_s * (num_ranks - 1) / num_ranks


class Crossing(NamedTuple):
    """What leaves a stage for the next: all outputs, and gradients of those that have one. Of one micro-batch, or several."""

    num_outputs: int
    output_bytes: int
    num_gradients: int
    gradient_bytes: int

    def part(self, num_ranks: int) -> Crossing:
        """What one of `num_ranks` tensor ranks carries of it: as many messages, of an equal part each."""
        return self._replace(
            output_bytes=self.output_bytes // num_ranks, gradient_bytes=self.gradient_bytes // num_ranks
        )


def in_all(by_micro: Sequence[Sequence[Crossing]]) -> list[Crossing]:
    """[micro-batch][stage] → [stage]: a step carries as many messages as micro-batches, each of its own size."""
    return [Crossing(*map(sum, zip(*of_stage, strict=True))) for of_stage in zip(*by_micro, strict=True)]


def traffic_by_peer(
    placement: Sequence[int],
    rank: int,
    crossings: Sequence[Crossing],
    *,
    phase: str = "",
    setup_bytes: Sequence[int] = (),
) -> dict[int, list[Traffic]]:
    """Point-to-point calls and bytes of one rank in one step, by the rank it exchanges them with.

    Full tensors, once each way for every micro-batch; nothing between two stages of one rank. The gradient
    exchange of replicas and of tied weights is not in it.
    crossings     what leaves each stage in the step, all micro-batches together (`in_all`)
    setup_bytes   sizes of tensors that neighbours exchange once, one each way, in this step
    """
    totals: dict[tuple[int, str], list[int]] = {}
    once = Crossing(len(setup_bytes), sum(setup_bytes), len(setup_bytes), sum(setup_bytes))
    for stage, crossing in enumerate(crossings):
        near, far = placement[stage], placement[stage + 1]
        if near == far or rank not in (near, far):
            continue
        ops = ("send", "recv") if rank == near else ("recv", "send")
        for what in (crossing, once):
            for op, calls, num_bytes in zip(ops, what[::2], what[1::2], strict=True):
                total = totals.setdefault((far if rank == near else near, op), [0, 0])
                total[0] += calls
                total[1] += num_bytes
    found: dict[int, list[Traffic]] = {}
    for (peer, op), (calls, num_bytes) in sorted(totals.items()):
        sent = num_bytes if op == "send" else 0
        found.setdefault(peer, []).append(Traffic(op, calls, sent, num_bytes - sent, phase=phase))
    return found


def boundary_gathers(
    placement: Sequence[int],
    place: int,
    crossings: Sequence[Crossing],
    num_ranks: int,
    *,
    phase: str = "",
) -> Traffic:
    """What a rank gathers in one step from its tensor group of `num_ranks`, when tensors cross boundaries in parts.

    place       of the rank in its pipeline
    crossings   as in `traffic_by_peer`
    Each arrival is one all_gather: a part in, the whole out. A boundary then carries 1/num_ranks of the bytes on
    each of num_ranks links, once in all instead of num_ranks times (Narayanan et al. 2021, scatter/gather).
    """
    calls = num_bytes = 0
    for stage, crossing in enumerate(crossings) if num_ranks > 1 else ():
        near, far = placement[stage], placement[stage + 1]
        if near != far and place == far:
            calls, num_bytes = calls + crossing.num_outputs, num_bytes + crossing.output_bytes
        if near != far and place == near:
            calls, num_bytes = calls + crossing.num_gradients, num_bytes + crossing.gradient_bytes
    return Traffic("all_gather", calls, num_bytes // num_ranks, num_bytes, group_size=num_ranks, phase=phase)
