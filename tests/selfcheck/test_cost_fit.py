"""The alpha-beta fit finds the parameters of a link, and refuses what no link of this kind produced."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parproof.cost.collectives import ring_time_s
from parproof.cost.fit import ModelRefused, fit_alpha_beta
from parproof.errors import UsageError

pytestmark = pytest.mark.selfcheck
SIZES = [2**k for k in range(10, 25, 2)]


def measured(op, ranks, alpha_s, bytes_per_s, noise=()):
    """Times of a link with these parameters, each off by its share of noise."""
    noise = noise or [0.0] * len(SIZES)
    return [
        (size, ring_time_s(op, ranks, size, alpha_s=alpha_s, bytes_per_s=bytes_per_s) * (1 + off))
        for size, off in zip(SIZES, noise, strict=True)
    ]


@settings(deadline=None)
@given(
    op=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]),
    ranks=st.integers(2, 64),
    alpha_s=st.floats(1e-6, 1e-3),
    bytes_per_s=st.floats(1e8, 4e10),
)
def test_exact_times_give_the_link_back(op, ranks, alpha_s, bytes_per_s):
    """Any link whose two regions both lie in the range of sizes; residual of rounding only."""
    fit = fit_alpha_beta(op, ranks, measured(op, ranks, alpha_s, bytes_per_s))
    assert fit.relative_residual < 1e-6
    assert fit.alpha_s == pytest.approx(alpha_s, rel=1e-4)
    assert fit.time_s(2**22) == pytest.approx(
        ring_time_s(op, ranks, 2**22, alpha_s=alpha_s, bytes_per_s=bytes_per_s), rel=1e-6
    )


def test_small_noise_stays_within_its_own_size():
    """5 % up and down: parameters within 15 %, residual told."""
    fit = fit_alpha_beta("all_reduce", 4, measured("all_reduce", 4, 1e-4, 1e9, [0.05, -0.05] * 4))
    assert 0.01 < fit.relative_residual < 0.1
    assert fit.alpha_s == pytest.approx(1e-4, rel=0.15)
    assert fit.bytes_per_s == pytest.approx(1e9, rel=0.15)


def test_another_algorithm_in_the_middle_is_refused():
    """A step of 2x at one size: the text says where the model is off, by how much, and what to do."""
    points = measured("all_reduce", 4, 1e-4, 1e9, [0, 0, 0, 1.0, 0, 0, 0, 0])
    with pytest.raises(
        ModelRefused, match=r"all_reduce over 4 ranks: \d+% off at 65536 bytes; expected at most 15%"
    ):
        fit_alpha_beta("all_reduce", 4, points)


def test_a_link_that_gets_slower_with_size_is_refused():
    """Time that grows with the square of the size has no bandwidth."""
    with pytest.raises(ModelRefused):
        fit_alpha_beta("all_reduce", 2, [(s, 1e-6 + s * s * 1e-15) for s in SIZES])


def test_times_that_fall_with_size_are_refused():
    """A negative time per byte is no bandwidth."""
    with pytest.raises(ModelRefused, match="positive time per byte"):
        fit_alpha_beta("send", 2, [(s, 1e-3 / (1 + i)) for i, s in enumerate(SIZES)])


@pytest.mark.parametrize(
    ("ranks", "points"),
    [
        (2, [(1, 1.0), (2, 2.0)]),
        (2, [(1, 1.0), (1, 1.1), (1, 0.9)]),
        (1, [(1, 1.0), (2, 2.0), (3, 3.0)]),
        (2, [(1, 0.0), (2, 2.0), (3, 3.0)]),
        (2, [(1, float("nan")), (2, 2.0), (3, 3.0)]),
    ],
    ids=["two_sizes", "one_size", "one_rank", "zero_time", "nan"],
)
def test_too_little_or_impossible_data_is_refused(ranks, points):
    """Two points fit any two numbers; an idle rank's zero is no time."""
    with pytest.raises(UsageError):
        fit_alpha_beta("all_reduce", ranks, points)
