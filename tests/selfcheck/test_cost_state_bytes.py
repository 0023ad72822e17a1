"""Golden numbers of the state-byte formulas, and what they refuse."""

import pytest

from parproof.cost.state_bytes import (
    Layout,
    Model,
    held_bytes,
    largest_first,
    owner_layout,
    owner_update,
    resident_state,
    step_traffic,
    training_state_ledger,
)
from parproof.errors import InvalidPlan

pytestmark = pytest.mark.selfcheck


@pytest.mark.parametrize(
    ("strategy", "per_parameter"), [("ddp", 16), ("zero1", 5.5), ("zero2", 3.75), ("zero3", 2)]
)
def test_sixteen_bytes_over_eight_ranks(strategy, per_parameter):
    """Mixed-precision Adam: 16Φ, 5.5Φ, 3.75Φ, 2Φ."""
    assert sum(resident_state(1000, 8, strategy)) == 1000 * per_parameter


@pytest.mark.parametrize(
    ("strategy", "resident_mb"),
    [("ddp", 1600), ("zero1", 1000), ("zero2", 700), ("zero3", 400), ("fsdp_full_shard", 400)],
)
def test_the_ledger_of_400_400_800_over_four_ranks(strategy, resident_mb):
    """Every strategy divides the parts it shards and no others."""
    assert training_state_ledger(400, 400, 800, 4, strategy)["resident_state_mb"] == resident_mb


def test_owner_maps_of_eight_parameters_on_two_ranks():
    """What is sharded covers each id once, what is not is everywhere."""
    everything = list(range(8))
    for strategy, counts in {
        "ddp": (8, 8, 8),
        "zero1": (8, 8, 4),
        "zero2": (8, 4, 4),
        "zero3": (4, 4, 4),
    }.items():
        maps = owner_layout(8, 2, strategy)
        assert tuple(len(owners[0]) for owners in maps.values()) == counts
        for owners in maps.values():
            held = [i for ids in owners.values() for i in ids]
            assert sorted(held) == everything or owners == {0: everything, 1: everything}


def test_each_owner_updates_its_own_parameters():
    """Learning rate 0.1, gradients 1 and 2: changes of 0.1 and 0.2."""
    after = owner_update([1.0, 1.0], [1.0, 2.0], owner_layout(2, 2, "zero1")["optimizer_states"], lr=0.1)
    assert after == pytest.approx([0.9, 0.8], abs=1e-15)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: resident_state(8, 0, "ddp"), "world size 0"),
        (lambda: resident_state(8, 2, "zero4"), "zero4"),
        (lambda: resident_state(-1, 2, "ddp"), "-1 parameters"),
        (lambda: owner_layout(7, 2, "zero1"), "7 parameters over 2 ranks"),
        (lambda: owner_layout(0, 2, "zero1"), "0 parameters"),
        (lambda: owner_layout(8, -2, "zero1"), "world size -2"),
        (lambda: training_state_ledger(1, 1, 1, -1, "ddp"), "world size -1"),
        (lambda: owner_update([1.0], [1.0, 2.0], {0: [0]}, 0.1), "2 gradients for 1"),
    ],
    ids=[
        "no_ranks",
        "no_such_stage",
        "negative_count",
        "indivisible",
        "nothing",
        "negative_ranks",
        "ledger",
        "gradients",
    ],
)
def test_impossible_layouts_are_refused_by_name(call, named):
    """An InvalidPlan (a ValueError) says what was wrong."""
    with pytest.raises(InvalidPlan, match=named):
        call()


def test_rows_elements_and_whole_parameters_share_out_every_element_once():
    """5×3 and 7 elements over 3 ranks, in the three ways of owning."""
    shapes = ((5, 3), (7,))
    for ownership, owned, shard in (
        ("elements", [8, 8, 6], 8),
        ("rows", [9, 9, 4], 9),
        ("parameters", [15, 7, 0], None),
    ):
        layout = Layout("zero1", ownership, "replicated", 3)
        assert [layout.owned(shapes, rank) for rank in range(3)] == owned
        assert shard is None or layout.shard(shapes) == shard
    assert largest_first([(4,), (3,), (3,), (2,)], 2) == [6, 6]


def test_a_step_sends_two_and_three_times_the_parameters():
    """Without padding: ddp reduces Φ; zero2 scatters Φ and gathers Φ; zero3 gathers Φ twice per micro-batch."""
    model = Model((((4, 4),), ((4, 2), (8,))), itemsize=4)
    phi = 4 * 32
    seen = {
        strategy: {
            (t.op, t.phase): t.in_bytes
            for t in step_traffic(model, Layout(strategy, "elements", "replicated", 4), 2)
        }
        for strategy in ("ddp", "zero1", "zero2", "zero3")
    }
    assert seen["ddp"] == {("all_reduce", "backward"): phi}
    assert seen["zero1"] == {("all_reduce", "backward"): phi, ("broadcast", "step"): phi}
    assert seen["zero2"][("reduce_scatter", "backward")] == phi
    assert seen["zero2"][("all_gather", "step")] == phi / 4
    assert (
        seen["zero3"][("all_gather", "forward")] == seen["zero3"][("all_gather", "backward")] == 2 * phi / 4
    )


def test_held_bytes_of_an_even_model_are_the_textbook_ones():
    """float32 Adam: 4, 4 and 8 bytes a parameter, divided where the strategy shards."""
    model = Model((((4, 4),), ((4, 2), (8,))), itemsize=4)
    for strategy in ("ddp", "zero1", "zero2", "zero3"):
        exact = held_bytes(model, Layout(strategy, "elements", "replicated", 4), rank=3)
        assert tuple(exact.values()) == resident_state(32, 4, strategy, (4, 4, 8))
