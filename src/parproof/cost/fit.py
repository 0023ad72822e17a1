"""alpha-beta fit of measured times, with its residual: a model that does not fit is refused, not reported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from parproof.cost.collectives import bus_factor, startup_steps
from parproof.errors import ParproofError, UsageError

# Links shaped to a known rate and delay were fitted within 10 % (docs/costs.md); one that sent in bursts was 38 %
# off, and its parameters meant nothing.
LARGEST_RELATIVE_RESIDUAL = 0.15


class ModelRefused(ParproofError):
    """The measured times do not follow the model well enough to speak of its parameters."""


@dataclass(frozen=True)
class AlphaBeta:
    """time = steps · alpha + carried bytes / bandwidth.

    relative_residual   largest |model − measured| / measured over the points
    """

    op: str
    group_size: int
    alpha_s: float
    bytes_per_s: float
    relative_residual: float
    num_points: int

    def time_s(self, size: int) -> float:
        """Modelled time of one call."""
        carried = float(bus_factor(self.op, self.group_size)) * size
        return startup_steps(self.op, self.group_size) * self.alpha_s + carried / self.bytes_per_s


def fit_alpha_beta(
    op: str,
    group_size: int,
    points: Sequence[tuple[int, float]],
    *,
    largest_relative_residual: float = LARGEST_RELATIVE_RESIDUAL,
) -> AlphaBeta:
    """Least squares of relative errors over (size in bytes, median seconds).

    Errors   UsageError for fewer than 3 different sizes: two points fit any two numbers.
             ModelRefused when a parameter is not positive, or a point lies further off than the limit.
    """
    _check_points(group_size, points)
    steps, factor = startup_steps(op, group_size), float(bus_factor(op, group_size))
    alpha, seconds_per_byte = _solve([(steps / t, factor * size / t) for size, t in points])
    where = f"alpha-beta model of {op} over {group_size} ranks"
    if not (alpha >= 0 and seconds_per_byte > 0):
        raise ModelRefused(
            f"start-up {alpha:.3g} s and {seconds_per_byte:.3g} s/byte",
            expected="a start-up of 0 or more and a positive time per byte",
            where=where,
            next_step="measure a wider range of sizes, or more repeats; report the times without a model",
        )
    model = AlphaBeta(op, group_size, alpha, 1 / seconds_per_byte, 0.0, len(points))
    size, residual = max(((s, abs(model.time_s(s) - t) / t) for s, t in points), key=lambda pair: pair[1])
    if not residual <= largest_relative_residual:
        raise ModelRefused(
            f"{residual:.0%} off at {size} bytes",
            expected=f"at most {largest_relative_residual:.0%} at every size",
            where=where,
            next_step="report the times without a model, or fit a range in which one algorithm is used",
        )
    return AlphaBeta(op, group_size, alpha, 1 / seconds_per_byte, residual, len(points))


def _check_points(group_size: int, points: Sequence[tuple[int, float]]) -> None:
    sizes = {size for size, _ in points}
    if group_size < 2 or len(sizes) < 3:
        raise UsageError(
            f"{len(sizes)} different sizes over {group_size} ranks",
            expected="at least 3 sizes and 2 ranks",
            where="alpha-beta fit",
        )
    if any(size < 0 or not (t > 0 and math.isfinite(t)) for size, t in points):
        raise UsageError("a negative size or a time that is not above 0", where="alpha-beta fit")


def _solve(rows: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Least squares of a·x + b·y = 1 by the normal equations, columns scaled to the same length."""
    scale_x = math.sqrt(sum(x * x for x, _ in rows))
    scale_y = math.sqrt(sum(y * y for _, y in rows))
    xy = sum(x * y for x, y in rows) / (scale_x * scale_y)
    x1, y1 = sum(x for x, _ in rows) / scale_x, sum(y for _, y in rows) / scale_y
    determinant = 1 - xy * xy
    return (x1 - xy * y1) / determinant / scale_x, (y1 - xy * x1) / determinant / scale_y
