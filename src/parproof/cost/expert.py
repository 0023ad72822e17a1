"""What an expert layer sends, from its routing matrix; and capacity. Derived in docs/costs.md. No torch.

Letters   D width, H hidden width, E experts, b bytes of an element, r ranks of the group
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from parproof.cost.traffic import Traffic
from parproof.errors import InvalidPlan

Matrix = Sequence[Sequence[int]]
COUNTS = ("all_gather.mesh", "all_gather.ep", "all_to_all.ep")
INTEGER_BYTES = 8


@dataclass(frozen=True)
class Sizes:
    """What the formulas need to know about the layer and the rank.

    kept      source rank × expert, of the rank's ep group; me: its place there
    owners    expert → rank of the ep group
    lengths   tokens of each source rank; places: rows for each (source, expert) when padded
    input_gradient   False: the layer is the first one, so that no gradient travels back to the tokens
    """

    kept: Matrix
    owners: Sequence[int]
    lengths: Sequence[int]
    places: int
    me: int
    width: int
    hidden: int
    top_k: int
    element_bytes: int
    ep: int
    dp: int
    tp: int
    input_gradient: bool = True

    @property
    def num_experts(self) -> int:
        """E."""
        return len(self.owners)

    def owned(self, rank: int) -> int:
        """Number of experts of a rank."""
        return sum(owner == rank for owner in self.owners)


def capacity(num_routes: int, num_experts: int, factor: str) -> int:
    """Places at each expert: ceil(routes · factor / E); the factor is decimal text, so that 10 · 1.1 is 11."""
    return math.ceil(Fraction(factor) * num_routes / num_experts)


def overflow(loads: Sequence[int], places: int) -> int:
    """Routes without a place: Σ max(load − places, 0)."""
    return sum(max(load - places, 0) for load in loads)


def max_over_mean(loads: Sequence[int]) -> float:
    """Busiest expert over the mean; 0 when nothing is routed."""
    return max(loads) * len(loads) / sum(loads) if sum(loads) else 0.0


def load_skew(loads: Sequence[int]) -> float:
    """(max − min) / mean, as some runners report it; 0 when nothing is routed. Two loads of 3 : 1 give 1.0."""
    return (max(loads) - min(loads)) * len(loads) / sum(loads) if sum(loads) else 0.0


def uniform_cross_ratio(num_ranks: int) -> float:
    """Share of routes that leave their rank (or their rail) when all destinations are as likely: (R − 1)/R."""
    if num_ranks < 1:
        raise InvalidPlan(f"{num_ranks} ranks", expected="at least one", where="expert cost")
    return (num_ranks - 1) / num_ranks


@dataclass(frozen=True)
class DenseAndSparse:
    """What a batch asks of a dense layer and of experts; units of work are not seconds.

    dense_units   tokens · hidden; routes: tokens · k; sparsity: k/E, the share of experts a token sees
    """

    dense_units: int
    routes: int
    sparsity: float


def dense_and_sparse(num_tokens: int, hidden: int, top_k: int, num_experts: int) -> DenseAndSparse:
    """Errors: InvalidPlan for a negative number of tokens, no width, or k outside of 1 … E."""
    if num_tokens < 0 or hidden < 1 or not 1 <= top_k <= num_experts:
        raise InvalidPlan(
            f"{num_tokens} tokens of width {hidden}, top {top_k} of {num_experts}",
            expected="tokens ≥ 0, width ≥ 1, 1 ≤ top k ≤ experts",
            where="expert cost",
        )
    return DenseAndSparse(num_tokens * hidden, num_tokens * top_k, top_k / num_experts)


def rows_by_rank(kept: Matrix, owners: Sequence[int]) -> list[list[int]]:
    """Source × destination: row sums leave a source, column sums arrive at a destination."""
    ranks = range(len(kept))
    return [[sum(n for e, n in enumerate(row) if owners[e] == d) for d in ranks] for row in kept]


def dispatch_parts(s: Sizes, dispatcher: str) -> tuple[list[int], list[int]]:
    """Bytes that a rank hands in for each rank of the ep group, and expects from each, on the way to the experts."""
    row_bytes = s.width * s.element_bytes
    if dispatcher == "padded":
        sent = [s.owned(d) * s.places for d in range(s.ep)]
        received = [s.owned(s.me) * s.places] * s.ep
    else:
        matrix = rows_by_rank(s.kept, s.owners)
        sent, received = matrix[s.me], [row[s.me] for row in matrix]
    return [n * row_bytes for n in sent], [n * row_bytes for n in received]


def traffic(s: Sizes, *, counts: str, dispatcher: str) -> list[Traffic]:
    """One step of a rank: forward, loss, backward, finish. Axes of one rank send nothing."""
    b, world, data = s.element_bytes, s.ep * s.dp * s.tp, s.ep * s.dp
    lines = _counts(s, counts, world)
    for phase in ("forward", "backward"):
        if s.ep > 1:
            lines += _rows(s, dispatcher, phase)
        if s.tp > 1 and (phase == "forward" or s.input_gradient):
            rows = _rows_at_experts(s, dispatcher) * s.width * b
            lines.append(Traffic("all_reduce", 1, rows, rows, s.tp, phase))
    if data > 1:
        lines.append(Traffic("all_reduce", 1, 2 * b, 2 * b, data, "loss"))
        router = s.num_experts * s.width * b
        lines.append(Traffic("all_reduce", 1, router, router, data, "finish"))
    if s.dp > 1:
        experts = s.owned(s.me) * 2 * s.width * (s.hidden // s.tp) * b
        lines.append(Traffic("all_reduce", 1, experts, experts, s.dp, "finish"))
    return _merged(lines)


def _counts(s: Sizes, counts: str, world: int) -> list[Traffic]:
    """E counts, the number of tokens; over the mesh also a data rank and a digest."""
    if counts == "all_gather.mesh" and world > 1:
        mine = (s.num_experts + 3) * INTEGER_BYTES
        return [Traffic("all_gather", 1, mine, mine * world, world, "forward")]
    if counts == "all_gather.ep" and s.ep > 1:
        mine = (s.num_experts + 1) * INTEGER_BYTES
        return [Traffic("all_gather", 1, mine, mine * s.ep, s.ep, "forward")]
    if counts == "all_to_all.ep" and s.ep > 1:
        received = s.owned(s.me) * s.ep * INTEGER_BYTES
        return [Traffic("all_to_all", 1, s.num_experts * INTEGER_BYTES, received, s.ep, "forward")]
    return []


def _rows(s: Sizes, dispatcher: str, phase: str) -> list[Traffic]:
    """Way to the experts and way back; gradients travel the same ways in the other direction."""
    if dispatcher != "all_gather":
        sent, received = map(sum, dispatch_parts(s, dispatcher))
        if phase == "backward" and not s.input_gradient:
            return [Traffic("all_to_all", 1, sent, received, s.ep, phase)]
        return [Traffic("all_to_all", 2, sent + received, sent + received, s.ep, phase)]
    length = max(s.lengths)
    x, weights = length * s.width * s.element_bytes, length * s.top_k * s.element_bytes
    ids = length * s.top_k * INTEGER_BYTES
    if phase == "forward":
        return [
            Traffic("all_gather", 3, ids + x + weights, (ids + x + weights) * s.ep, s.ep, phase),
            Traffic("reduce_scatter", 1, x * s.ep, x, s.ep, phase),
        ]
    back = weights + x * s.input_gradient
    return [
        Traffic("all_gather", 1, x, x * s.ep, s.ep, phase),
        Traffic("reduce_scatter", 1 + s.input_gradient, back * s.ep, back, s.ep, phase),
    ]


def _rows_at_experts(s: Sizes, dispatcher: str) -> int:
    if dispatcher == "padded":
        return s.ep * s.owned(s.me) * s.places
    return sum(row[s.me] for row in rows_by_rank(s.kept, s.owners))


def _merged(lines: Sequence[Traffic]) -> list[Traffic]:
    """One line for each (op, group size, phase): the ledger cannot tell groups of one size apart."""
    sums: dict[tuple[str, int, str], Traffic] = {}
    for line in lines:
        key = line.op, line.group_size, line.phase
        old = sums.get(key, Traffic(line.op, 0, 0, 0, line.group_size, line.phase))
        sums[key] = Traffic(
            line.op,
            old.calls + line.calls,
            old.in_bytes + line.in_bytes,
            old.out_bytes + line.out_bytes,
            line.group_size,
            line.phase,
        )
    return list(sums.values())
