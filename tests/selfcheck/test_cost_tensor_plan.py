"""Formulas of tensor parallelism: golden numbers and what must hold for all sizes."""

import pytest

from parproof.cost import tensor_plan as cost
from parproof.cost.traffic import Traffic
from parproof.errors import InvalidPlan

pytestmark = pytest.mark.selfcheck


@pytest.mark.parametrize(("asked", "expected"), cost.GOLDEN_PLANS.items(), ids=str)
def test_the_head_plan_table(asked, expected):
    """Sharded, shared or refused; a refusal names the numbers."""
    if expected is None:
        with pytest.raises(InvalidPlan, match=f"q_heads={asked[0]}, kv_heads={asked[1]}, ranks={asked[2]}"):
            cost.attention_plan(*asked)
    else:
        assert tuple(cost.attention_plan(*asked).values()) == expected


def test_a_plan_gives_every_query_head_its_key_and_value():
    """Over all small sizes: whole heads only, and each rank's KV heads are those its queries ask for."""
    for ranks in range(1, 9):
        for kv_heads in range(1, 13):
            for group in range(1, 5):
                q_heads = kv_heads * group
                try:
                    plan = cost.attention_plan(q_heads, kv_heads, ranks)
                except InvalidPlan:
                    assert q_heads % ranks or (kv_heads % ranks and ranks % kv_heads)
                    continue
                q, kv, copies = plan["q_heads_per_rank"], plan["kv_heads_per_rank"], plan["kv_replication"]
                assert (q * ranks, kv * ranks) == (q_heads, kv_heads * copies)
                for rank in range(ranks):
                    asked = {head * kv_heads // q_heads for head in range(rank * q, (rank + 1) * q)}
                    held = set(range(rank // copies * kv, rank // copies * kv + kv))
                    assert asked == held


def test_the_page_example_moves_one_output_per_forward():
    """Batch 8, width 4096, bf16 over two ranks: 64 KiB each way, whatever the hidden width."""
    assert cost.pair_traffic(8 * 4096, 8 * 4096, 2, 2) == [
        Traffic("all_reduce", 1, 65536, 65536, 2, "forward"),
        Traffic("all_reduce", 1, 65536, 65536, 2, "backward"),
    ]


def test_sequence_parallel_moves_what_the_pair_moves():
    """An all_reduce counts once in and once out; a reduce-scatter and a gather share that between them."""
    p, x, e = 4, 960, 4
    pair = cost.pair_traffic(x, x, p, e)
    split = cost.sequence_traffic(x, x, p, e, common=[])
    ring = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
    sent = [sum(ring[line.op] * x * e * (p - 1) // p for line in lines) for lines in (pair, split)]
    assert sent[0] == sent[1]
    assert sum(line.in_bytes + line.out_bytes for line in split) == 2 * (x * e + x * e // p) * 2


def test_resident_bytes_fall_with_the_ranks_except_what_all_keep():
    """A hidden width of 11008 over two ranks; a norm stays whole; shared KV heads are held by their sharers."""
    assert cost.resident_bytes(2 * 4096 * 11008, 4096, 2, 2) == 4096 * 11008 * 2 + 4096 * 2
    assert cost.resident_bytes(0, 0, 4, 2, shared=64, copies=2) == 64
    with pytest.raises(InvalidPlan, match="13 numbers in 2 equal parts"):
        cost.resident_bytes(13, 0, 2, 4)


def test_lines_of_one_operation_add_up():
    """When the ranks that share a KV head are all ranks, their sums are on the same line."""
    lines = cost.attention_traffic(100, 100, 2, 4, copies=2, kv_numbers=[10, 20])
    assert Traffic("all_reduce", 3, 520, 520, 2, "backward") in lines
    assert len(lines) == 2
