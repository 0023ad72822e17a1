"""The checks of parts against the whole can fail, each in its own words."""

import functools
from types import SimpleNamespace

import pytest

from parproof import workloads

pytestmark = pytest.mark.selfcheck


@functools.cache
def made():
    """Modules that need torch, and two parts of a whole: not at import, since collection must not load torch."""
    import torch

    from parproof.checks import tensor as checks
    from parproof.oracles.tensor import unsplit
    from parproof.programs.tensor import Outcome
    from parproof.subjects.tensor_protocol import Piece

    whole = torch.arange(1.0, 7.0, dtype=torch.float64)
    first, last = Piece(whole[:3], ((0, 3),)), Piece(whole[3:], ((3, 6),))
    return SimpleNamespace(
        torch=torch,
        checks=checks,
        unsplit=unsplit,
        Outcome=Outcome,
        Piece=Piece,
        WHOLE=whole,
        FIRST=first,
        LAST=last,
    )


def judge(*pieces, bound=None):
    """Each argument is what one rank holds."""
    made().checks.assert_pieces(pieces, made().WHOLE, dtype=made().torch.float64, what="w", bound=bound)


def test_parts_that_make_the_whole_pass():
    """In any number of pieces, also with copies."""
    judge([made().FIRST], [made().LAST])
    judge([made().FIRST, made().LAST], [made().FIRST])


def test_an_element_that_is_nowhere_is_named():
    """What no rank holds cannot be wrong, so it has to be looked for."""
    with pytest.raises(
        AssertionError, match=r"all 2 ranks: w: 3 of 6 elements are on no rank; first at \[3\]"
    ):
        judge([made().FIRST], [made().FIRST])


def test_a_part_in_another_place_is_found():
    """Values encode their place, so a swapped order shows."""
    with pytest.raises(AssertionError, match="rank 0 of 2: w: 3 of 3 elements differ"):
        judge(
            [made().Piece(made().LAST.local, made().FIRST.index)],
            [made().Piece(made().FIRST.local, made().LAST.index)],
        )


def test_copies_within_the_bound_must_still_agree():
    """Two ranks that drift apart within rounding are not replicas."""
    drifted = made().Piece(made().WHOLE * (1 + 1e-15), ((0, 6),))
    judge([drifted], [drifted], bound=1e-12)
    with pytest.raises(AssertionError, match="rank 1 of 2: w, compared with rank 0"):
        judge([made().Piece(made().WHOLE, ((0, 6),))], [drifted], bound=1e-12)


def test_a_refusal_counts_only_when_all_ranks_refuse():
    """One rank that refuses alone leaves its peers waiting."""
    assert not made().checks.answered(
        [made().Outcome(refused="odd"), made().Outcome(refused="odd")], "c", may_refuse=True
    )
    with pytest.raises(AssertionError, match="rank 1 of 2: c: refused, but another rank answered: odd"):
        made().checks.answered([made().Outcome(), made().Outcome(refused="odd")], "c", may_refuse=True)
    with pytest.raises(AssertionError, match="rank 0 of 1: c: refused, but it must be answered: odd"):
        made().checks.answered([made().Outcome(refused="odd")], "c", may_refuse=False)


def test_integer_cases_are_exact_in_float32_in_any_order():
    """The sum of absolute values bounds every partial sum; a gated or smooth layer would not qualify."""
    for case in (*workloads.tensor.LINEAR, *workloads.tensor.MLPS["relu"]):
        assert_exact_in_float32(case)


def assert_exact_in_float32(case):
    """Integers below 2**24, whatever is added first."""
    answer = made().unsplit(case)
    x, params = case.input().double().abs(), {n: p.double().abs() for n, p in case.params().items()}
    first = params.get("weight", params.get("up.weight"))
    largest = (x @ first.T).max() + max(float(p.max()) for n, p in params.items() if n.endswith("bias"))
    tokens = x.shape[:-1].numel()
    if "down.weight" in params:
        hidden = largest
        largest = hidden * params["down.weight"].sum(1).max() + 108
        largest = max(largest, tokens * 9 * max(hidden, params["down.weight"].sum(0).max() * 9))
    assert largest < 2**24, case.name
    assert all(bool((g == g.round()).all()) for g in [answer.output, *answer.gradients.values()]), case.name


def test_a_gradient_wrong_by_a_ten_thousandth_is_outside_the_bound():
    """float64 sees what float32 would lose in its rounding."""
    bound = made().checks.rounding_bound(made().torch.float64, 4, 64, norm=1.0, total=10.0)
    assert 1e-15 < bound < 1e-12 < 1e-4
