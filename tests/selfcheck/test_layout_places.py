"""Where parts have to lie, and what moving them costs: by hand, without ranks."""

import pytest

from parproof.cost.tensor_moves import move_traffic
from parproof.cost.traffic import Traffic
from parproof.subjects.tensor_protocol import Layout, Piece

pytestmark = pytest.mark.selfcheck
LINE = Layout((4,), ("S0",))


def assert_places(pieces, layout):
    """Of a [5, 3] tensor. The check needs torch, which collection must not load."""
    from parproof.checks.layout_places import assert_places

    assert_places(pieces, (5, 3), layout, "moved")


def rows(*ranges, length=None):
    """Pieces of a [5, 3] tensor, cut by rows."""
    import torch

    return [Piece(torch.zeros(length or b - a, 3), ((a, b), (0, 3))) for a, b in ranges]


@pytest.mark.parametrize(
    "ranges",
    [((0, 2), (2, 3), (3, 4), (4, 5)), ((0, 2), (2, 4), (4, 5), (5, 5))],
    ids=["even_parts", "torch_chunk"],
)
def test_parts_in_the_order_of_the_ranks_are_in_place(ranges):
    """Parts that differ by one row, and those of torch.chunk, the last of them empty."""
    assert_places(rows(*ranges), LINE)


@pytest.mark.parametrize(
    "ranges",
    [
        ((0, 5),) * 4,
        ((0, 3), (3, 4), (4, 5), (5, 5)),
        ((2, 4), (0, 2), (4, 5), (5, 5)),
        ((0, 2), (2, 4), (4, 4), (4, 4)),
        ((0, 2), (2, 4), (3, 5), (5, 5)),
    ],
    ids=["whole", "too_long", "swapped", "too_short", "overlapping"],
)
def test_other_parts_are_not(ranges):
    """Each holds right elements, and not those that are the rank's own."""
    with pytest.raises(
        AssertionError, match=r"rank \d of 4: moved: it holds \d:\d of dim 0 of 5, expected part"
    ):
        assert_places(rows(*ranges), LINE)


def test_what_is_not_split_is_whole_and_copies_are_equal():
    """A grid: rows by the first axis, and the second holds copies."""
    grid = Layout((2, 2), ("S0", "R"))
    assert_places(rows((0, 3), (0, 3), (3, 5), (3, 5)), grid)
    with pytest.raises(AssertionError, match="rank 1 of 4: moved: it holds 3:5 of dim 0"):
        assert_places(rows((0, 3), (3, 5), (3, 5), (3, 5)), grid)
    with pytest.raises(AssertionError, match=r"a tensor of shape \(4, 3\) is said to be"):
        assert_places(rows((0, 5), length=4), Layout((1,), ("R",)))


@pytest.mark.parametrize(
    ("source", "target", "lines"),
    [
        ("S0", "R", [("all_gather", 12, 36, "forward")]),
        ("R", "S0", [("all_gather", 12, 36, "backward")]),
        ("P", "R", [("all_reduce", 36, 36, "forward")]),
        ("P", "S0", [("reduce_scatter", 36, 12, "forward"), ("all_gather", 12, 36, "backward")]),
        ("S0", "S1", [("all_to_all", 12, 12, "forward"), ("all_to_all", 12, 12, "backward")]),
    ],
)
def test_a_move_of_nine_floats_over_three_ranks(source, target, lines):
    """36 bytes, three of them a row or a column of each rank."""
    parts = {"S0": [(1, 3)] * 3, "S1": [(3, 1)] * 3, "R": [(3, 3)] * 3, "P": [(3, 3)] * 3}
    expected = [Traffic(op, 1, a, b, 3, phase) for op, a, b, phase in lines]
    assert move_traffic(source, target, (3, 3), parts[source], parts[target], 0, 4) == expected
