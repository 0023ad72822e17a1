"""What context parallelism sends, per rank. Derived in docs/costs.md#context-parallelism."""

from __future__ import annotations

from collections.abc import Sequence

from parproof.cost.traffic import Traffic
from parproof.errors import InvalidPlan


def local_length(sequence_length: int, world_size: int) -> int:
    """S/p; S has to be a multiple of p."""
    if world_size < 1 or sequence_length % world_size:
        raise InvalidPlan(
            f"sequence of {sequence_length} over {world_size} ranks",
            expected="a positive multiple of the number of ranks",
            where="context parallel cost",
        )
    return sequence_length // world_size


def ring_rounds(world_size: int) -> int:
    """Exchanges in one forward pass."""
    return world_size - 1


def ring_round_bytes(sequence_length: int, width: int, element_bytes: int, world_size: int) -> int:
    """K and V of one block, 2·(S/p)·width·bytes; width = key/value heads · head width (batch 1)."""
    return 2 * local_length(sequence_length, world_size) * width * element_bytes


def ring_total_bytes(sequence_length: int, width: int, element_bytes: int, world_size: int) -> int:
    """All rounds of one forward pass."""
    return ring_rounds(world_size) * ring_round_bytes(sequence_length, width, element_bytes, world_size)


def traffic(
    variant: str, *, kv_bytes: int, q_bytes: int, accumulator_kv_bytes: int, world_size: int
) -> list[Traffic]:
    """Calls and bytes of one forward and one backward pass.

    kv_bytes               bytes of the local K (V is as large)
    q_bytes                bytes of the local queries
    accumulator_kv_bytes   bytes of the local dK in the accumulation dtype
    """
    p = world_size
    if variant == "ring":
        forward, home = p - 1, p
        back_bytes = 2 * (p - 1) * kv_bytes + 2 * home * accumulator_kv_bytes
        return [
            Traffic("send", 2 * forward, 2 * forward * kv_bytes, 0, p, "forward"),
            Traffic("recv", 2 * forward, 0, 2 * forward * kv_bytes, p, "forward"),
            Traffic("send", 2 * (p - 1) + 2 * home, back_bytes, 0, p, "backward"),
            Traffic("recv", 2 * (p - 1) + 2 * home, 0, back_bytes, p, "backward"),
        ]
    if variant == "torch_public":
        return _torch_public_traffic(kv_bytes, accumulator_kv_bytes * q_bytes // kv_bytes, p)
    if variant.startswith("torch_"):
        return _torch_traffic(variant, kv_bytes, accumulator_kv_bytes, p)
    if variant == "all_gather":
        return [
            Traffic("all_gather", 2, 2 * kv_bytes, 2 * p * kv_bytes, p, "forward"),
            Traffic(
                "reduce_scatter", 2, 2 * p * accumulator_kv_bytes, 2 * accumulator_kv_bytes, p, "backward"
            ),
        ]
    each_way = 2 * q_bytes + 2 * kv_bytes
    return [
        Traffic("all_to_all", 4, each_way, each_way, p, "forward"),
        Traffic("all_to_all", 4, each_way, each_way, p, "backward"),
    ]


def shared_traffic(shared_bytes: Sequence[int], world_size: int) -> list[Traffic]:
    """What tensors that every rank holds add: an all_reduce of the gradient of each, at the end; nothing before."""
    total = sum(shared_bytes)
    return [Traffic("all_reduce", len(shared_bytes), total, total, world_size, "finish")]


def _torch_public_traffic(kv_bytes: int, spread_bytes: int, p: int) -> list[Traffic]:
    """K and V are gathered again for the backward pass; sums of their gradients travel as K and V are given.

    spread_bytes   of K as it is gathered: in the accumulation dtype, and repeated for each query head
    """
    return [
        Traffic("all_gather", 2, 2 * spread_bytes, 2 * p * spread_bytes, p, "forward"),
        Traffic("all_gather", 2, 2 * spread_bytes, 2 * p * spread_bytes, p, "backward"),
        Traffic("reduce_scatter", 2, 2 * p * kv_bytes, 2 * kv_bytes, p, "backward"),
    ]


def _torch_traffic(variant: str, kv_bytes: int, accumulator_kv_bytes: int, p: int) -> list[Traffic]:
    """torch moves K and V in one buffer; gradients always go around by all-to-all, once more than K and V."""
    home = 2 * p * accumulator_kv_bytes
    if variant == "torch_ring":
        there = 2 * (p - 1) * kv_bytes
        return [
            Traffic("all_to_all", p - 1, there, there, p, "forward"),
            Traffic("all_to_all", 2 * p - 1, there + home, there + home, p, "backward"),
        ]
    return [
        Traffic("all_gather", 1, 2 * kv_bytes, 2 * p * kv_bytes, p, "forward"),
        Traffic("all_gather", 1, 2 * kv_bytes, 2 * p * kv_bytes, p, "backward"),
        Traffic("all_to_all", p, home, home, p, "backward"),
    ]
