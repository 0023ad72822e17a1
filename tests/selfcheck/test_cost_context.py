"""What context parallelism sends: golden numbers, and relations that hold for any size."""

import pytest

from parproof.cost import context as cost
from parproof.cost.traffic import Traffic
from parproof.errors import InvalidPlan

pytestmark = pytest.mark.selfcheck


def test_the_golden_numbers_of_the_source_page():
    """S = 1024, width 4096, 2 bytes, 4 ranks."""
    assert cost.local_length(6, 3) == 2
    assert cost.local_length(1024, 4) == 256
    assert cost.ring_rounds(4) == 3
    assert cost.ring_round_bytes(1024, 4096, 2, 4) == 4_194_304
    assert cost.ring_total_bytes(1024, 4096, 2, 4) == 12_582_912


def test_one_rank_sends_nothing():
    """There is nobody to send to."""
    assert cost.ring_total_bytes(1024, 64, 2, 1) == 0


@pytest.mark.parametrize(("length", "world_size"), [(6, 4), (8, 0), (7, 2)])
def test_what_does_not_split_is_refused(length, world_size):
    """As the page's own example of 6 tokens on 4 ranks."""
    with pytest.raises(InvalidPlan, match=f"sequence of {length}"):
        cost.local_length(length, world_size)


def test_what_all_ranks_hold_costs_one_sum_each():
    """Two norm weights of 32 elements, float64, four ranks."""
    assert cost.shared_traffic([256, 256], 4) == [Traffic("all_reduce", 2, 512, 512, 4, "finish")]


@pytest.mark.parametrize(
    "variant", ["ring", "all_gather", "ulysses", "torch_ring", "torch_all_gather", "torch_public"]
)
@pytest.mark.parametrize("p", [2, 3, 4])
def test_forward_and_backward_are_told_apart_and_add_up(variant, p):
    """In the ring what is sent is received; forward moves p−1 blocks of K and V, whoever carries them."""
    lines = cost.traffic(variant, kv_bytes=100, q_bytes=400, accumulator_kv_bytes=200, world_size=p)
    assert {line.phase for line in lines} == {"forward", "backward"}
    if variant in ("ring", "torch_ring"):
        forward = [line for line in lines if line.phase == "forward"]
        assert (
            sum(line.in_bytes for line in forward) == sum(line.out_bytes for line in forward) == 200 * (p - 1)
        )
