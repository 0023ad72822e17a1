"""Value checks: equality where the mathematics allows it, else a bound that was derived beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def assert_exact(observed: Tensor, expected: Tensor, *, where: str, what: str = "output") -> None:
    """Same shape, same dtype, same value in every element (0 ULP; +0 equals −0). NaN never passes."""
    __tracebackhide__ = True
    _assert_same_kind(observed, expected, where, what)
    wrong = ~(observed == expected)
    if not bool(wrong.any()):
        return
    index = tuple(int(i) for i in wrong.nonzero()[0])
    raise AssertionError(
        f"{where}: {what}: {int(wrong.sum())} of {wrong.numel()} elements differ from the baseline;"
        f" first at {list(index)}: observed {observed[index].item()}, expected {expected[index].item()}"
    )


def assert_within(
    observed: Tensor, expected: Tensor, *, bound: float, where: str, what: str = "output"
) -> float:
    """L2 norm of the error at most `bound` (absolute, derived; see docs/numerics.md). Returns the error.

    The comparison is made in float64, so that it adds no rounding of its own. NaN and infinity never pass.
    """
    __tracebackhide__ = True
    if tuple(observed.shape) != tuple(expected.shape):
        raise AssertionError(
            f"{where}: {what}: shape {list(observed.shape)}, expected {list(expected.shape)}"
        )
    error = float((observed.detach().double() - expected.detach().double()).norm())
    if not error <= bound:
        raise AssertionError(
            f"{where}: {what}: L2 error {error:.3e} differs from the baseline by more than the derived bound"
            f" {bound:.3e} (norm of the baseline {float(expected.detach().double().norm()):.3e})"
        )
    return error


def _assert_same_kind(observed: Tensor, expected: Tensor, where: str, what: str) -> None:
    __tracebackhide__ = True
    if observed.dtype != expected.dtype:
        raise AssertionError(f"{where}: {what}: dtype {observed.dtype}, expected {expected.dtype}")
    if tuple(observed.shape) != tuple(expected.shape):
        raise AssertionError(
            f"{where}: {what}: shape {list(observed.shape)}, expected {list(expected.shape)}"
        )


def is_finite(value: Tensor) -> bool:
    """No NaN, no infinity."""
    return bool(value.isfinite().all())
