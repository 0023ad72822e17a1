"""The checks of PAR-ZERO-STATE fail on what they are there for, and name the rank."""

import pytest

from parproof.checks import zero_state as state

pytestmark = pytest.mark.selfcheck


@pytest.fixture
def weight():
    """Six distinct elements, as the baseline has them."""
    import torch

    return torch.arange(6.0).reshape(2, 3)


def pieces(weight, *ranges):
    """What one rank holds: slices of the flattened weight."""
    return {"w": [(lo, weight.flatten()[lo:hi].clone()) for lo, hi in ranges]}


def test_two_halves_are_the_whole(weight):
    """The passing case, exact and within a bound."""
    halves = [pieces(weight, (0, 4)), pieces(weight, (4, 6))]
    for bounds in (None, 0.0, {"w": 0.0}):
        state.assert_pieces(halves, {"w": weight}, what="parameters", bounds=bounds)
    state.assert_owned(halves, {"w": 6}, what="parameters", copies=1)


def test_a_hole_is_found(weight):
    """Every piece that exists is right; one element is nowhere."""
    halves = [pieces(weight, (0, 3)), pieces(weight, (4, 6))]
    with pytest.raises(AssertionError, match="all 2 ranks: parameters of w: element 3 is held by no rank"):
        state.assert_pieces(halves, {"w": weight}, what="parameters", bounds=None)
    with pytest.raises(AssertionError, match=r"element 3 is held by ranks \[\], expected 1"):
        state.assert_owned(halves, {"w": 6}, what="parameters", copies=1)


def test_an_overlap_and_a_missing_copy_are_found(weight):
    """One owner too many, one copy too few."""
    overlap = [pieces(weight, (0, 4)), pieces(weight, (3, 6))]
    with pytest.raises(AssertionError, match=r"rank 0 of 2: .* element 3 is held by ranks \[0, 1\]"):
        state.assert_owned(overlap, {"w": 6}, what="parameters", copies=1)
    with pytest.raises(AssertionError, match=r"rank 0 of 2: .* expected 2 owner"):
        state.assert_owned([pieces(weight, (0, 6)), {}], {"w": 6}, what="parameters", copies=2)
    with pytest.raises(AssertionError, match=r"rank 0 of 1: .* element 1 is held twice here"):
        state.assert_owned([pieces(weight, (0, 2), (1, 6))], {"w": 6}, what="parameters", copies=1)


@pytest.mark.parametrize("bounds", [None, 1e6], ids=["exact", "bounded"])
def test_nan_never_passes(weight, bounds):
    """Not even under a bound that anything else would meet."""
    mine = pieces(weight, (0, 6))
    mine["w"][0][1][2] = float("nan")
    with pytest.raises(AssertionError, match=r"rank 1 of 2: gradients of w\[0:6\]"):
        state.assert_pieces([pieces(weight, (0, 6)), mine], {"w": weight}, what="gradients", bounds=bounds)


def test_swapped_shards_and_unknown_names_are_found(weight):
    """The right values in the wrong place, and state of a parameter that should have none."""
    swapped = [{"w": [(3, weight.flatten()[:3])]}, {"w": [(0, weight.flatten()[3:])]}]
    with pytest.raises(AssertionError, match=r"rank 0 of 2: parameters of w\[3:6\]"):
        state.assert_pieces(swapped, {"w": weight}, what="parameters", bounds=None)
    with pytest.raises(AssertionError, match="rank 0 of 1: exp_avg of w exist; the baseline has none"):
        state.assert_pieces([pieces(weight, (0, 6))], {}, what="exp_avg", bounds=None)


@pytest.mark.parametrize("norm", [float("nan"), 2.0, 1.0 + 1e-9], ids=str)
def test_a_wrong_norm_is_found(norm):
    """On the rank that reports it."""
    results = [{"norms": [1.0]}, {"norms": [norm]}]
    with pytest.raises(AssertionError, match="rank 1 of 2: gradient norm of window 0"):
        state.assert_norm(results, 0, 1.0, bound=1e-12)


def test_bytes_held_beside_the_state_are_found():
    """What the formula does not know has to be nothing."""
    formula = {"parameters": 8}
    with pytest.raises(AssertionError, match=r"rank 0 of 2: .* other hold 4 bytes, expected 0"):
        state.assert_bytes({"parameters": 8, "other": 4}, formula, where="rank 0 of 2")
    with pytest.raises(AssertionError, match="parameters hold 16 bytes, expected 8"):
        state.assert_bytes({"parameters": 16}, formula, where="rank 0 of 2")
