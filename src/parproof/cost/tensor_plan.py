"""Tensor parallelism: the attention head plan, resident parameter bytes, calls and bytes of each phase.

Legend: p ranks; x, y numbers in the whole input and output; e bytes a number. Payload is what a rank hands in and
gets back, not what travels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from parproof.cost.traffic import Traffic
from parproof.errors import InvalidPlan


def attention_plan(q_heads: int, kv_heads: int, ranks: int) -> dict[str, int | str]:
    """Whole heads for each rank: KV heads are split, or shared by ranks / kv_heads of them, or it is refused.

    Errors  InvalidPlan, naming the three numbers
    """
    asked = f"q_heads={q_heads}, kv_heads={kv_heads}, ranks={ranks}"
    if q_heads <= 0 or kv_heads <= 0 or ranks <= 0:
        raise InvalidPlan(asked, expected="all positive")
    if q_heads % ranks or q_heads % kv_heads:
        raise InvalidPlan(asked, expected="q_heads divisible by ranks and by kv_heads")
    if kv_heads % ranks == 0:
        mode, per_rank, copies = "shard", kv_heads // ranks, 1
    elif ranks % kv_heads == 0:
        mode, per_rank, copies = "replicate", 1, ranks // kv_heads
    else:
        raise InvalidPlan(asked, expected="kv_heads a multiple or a divisor of ranks")
    return {
        "q_heads_per_rank": q_heads // ranks,
        "kv_mode": mode,
        "kv_heads_per_rank": per_rank,
        "kv_replication": copies,
    }


# (q heads, kv heads, ranks) → (q per rank, mode, kv per rank, ranks that share a KV head), None: refused.
GOLDEN_PLANS: dict[tuple[int, int, int], tuple[int, str, int, int] | None] = {
    (32, 8, 4): (8, "shard", 2, 1),
    (32, 2, 4): (8, "replicate", 1, 2),
    (12, 12, 3): (4, "shard", 4, 1),
    (12, 1, 4): (3, "replicate", 1, 4),
    **dict.fromkeys([(30, 8, 4), (32, 6, 4), (32, 8, 0), (0, 8, 4), (12, 8, 4), (12, -1, 4)]),
}


def resident_bytes(split: int, common: int, ranks: int, e: int, *, shared: int = 0, copies: int = 1) -> int:
    """Parameter bytes on each rank.

    split    numbers of parameters of which each rank has a p-th; common: of which every rank has all
    shared   numbers of K and V, of which `copies` ranks share each part
    """
    for numbers, parts in ((split, ranks), (shared * copies, ranks)):
        if numbers % parts:
            raise InvalidPlan(f"{numbers} numbers in {parts} equal parts", expected="a multiple")
    return (split // ranks + common + shared * copies // ranks) * e


def column_traffic(x: int, y: int, p: int, e: int, *, gather_output: bool) -> list[Traffic]:
    """Output gathered if wanted; input gradient summed."""
    gathered = [Traffic("all_gather", 1, y // p * e, y * e, p, "forward")] if gather_output else []
    return [*gathered, Traffic("all_reduce", 1, x * e, x * e, p, "backward")]


def row_traffic(x: int, y: int, p: int, e: int, *, input_is_split: bool) -> list[Traffic]:
    """Output summed; input gradient gathered if the input was whole."""
    summed = Traffic("all_reduce", 1, y * e, y * e, p, "forward")
    if input_is_split:
        return [summed]
    return [summed, Traffic("all_gather", 1, x // p * e, x * e, p, "backward")]


def pair_traffic(x: int, y: int, p: int, e: int) -> list[Traffic]:
    """Column, then row: one sum forward, one backward."""
    return [
        Traffic("all_reduce", 1, y * e, y * e, p, "forward"),
        Traffic("all_reduce", 1, x * e, x * e, p, "backward"),
    ]


def attention_traffic(
    x: int, y: int, p: int, e: int, *, copies: int = 1, kv_numbers: Sequence[int] = ()
) -> list[Traffic]:
    """As a pair; where `copies` ranks share a KV head, the gradient of each of its parameters is summed too."""
    lines = pair_traffic(x, y, p, e)
    if copies > 1:
        lines += [Traffic("all_reduce", 1, n * e, n * e, copies, "backward") for n in kv_numbers]
    return merged(lines)


def embedding_traffic(y: int, p: int, e: int) -> list[Traffic]:
    """Vectors summed; the gradient of a table needs nothing."""
    return [Traffic("all_reduce", 1, y * e, y * e, p, "forward")]


def loss_traffic(tokens: int, p: int, e: int) -> list[Traffic]:
    """For each token: the largest logit, the sum of exponentials, the logit of the target."""
    return [Traffic("all_reduce", 3, 3 * tokens * e, 3 * tokens * e, p, "forward")]


def sequence_traffic(x: int, y: int, p: int, e: int, *, common: Sequence[int]) -> list[Traffic]:
    """Gather and reduce-scatter where a pair sums; and a sum for each parameter that sees a part of the tokens.

    Together they move what the pair's two all_reduces move: an all_reduce is a reduce-scatter and a gather.
    """
    return merged(
        [
            Traffic("all_gather", 1, x // p * e, x * e, p, "forward"),
            Traffic("reduce_scatter", 1, y * e, y // p * e, p, "forward"),
            Traffic("all_gather", 1, y // p * e, y * e, p, "backward"),
            Traffic("reduce_scatter", 1, x * e, x // p * e, p, "backward"),
            *(Traffic("all_reduce", 1, n * e, n * e, p, "backward") for n in common),
        ]
    )


def merged(lines: Iterable[Traffic]) -> list[Traffic]:
    """One line for each operation, group size and phase."""
    sums: dict[tuple[str, int, str], list[int]] = {}
    for line in lines:
        numbers = sums.setdefault((line.op, line.group_size, line.phase), [0, 0, 0])
        for place, value in enumerate((line.calls, line.in_bytes, line.out_bytes)):
            numbers[place] += value
    return [Traffic(op, n[0], n[1], n[2], size, phase) for (op, size, phase), n in sums.items()]
