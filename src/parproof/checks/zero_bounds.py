"""How far a sharded run may be from the single process: derived in docs/numerics.md, «Training state»."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from parproof.oracles.zero import Recipe, Trajectory

EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7}
SAFETY = 8.0
FLOOR = 0.01
# No Hessian of a workload has a larger eigenvalue anywhere on its course; a selfcheck computes them.
CURVATURE = 40.0


def gradient_bounds(
    gradients: Mapping[str, Tensor], *, world: int, samples: int, dtype: str = "float64"
) -> dict[str, float]:
    """Per tensor C·eps·sqrt(log2 W + log2 K)·(|g| + 0.01·|all|): re-association of sums, nothing else."""
    norms = {name: float(g.double().norm()) for name, g in gradients.items()}
    total = math.sqrt(sum(norm**2 for norm in norms.values()))
    unit = SAFETY * EPS[dtype] * math.sqrt(math.log2(max(world, 2)) + math.log2(samples))
    return {name: unit * (norm + FLOOR * total) for name, norm in norms.items()}


@dataclass(frozen=True)
class Drift:
    """Bounds (L2, all tensors together) after the last window: of gradients, parameters and moments."""

    gradient: float
    parameters: float
    exp_avg: float
    exp_avg_sq: float
    loss: float


def drift(course: Trajectory, recipe: Recipe, *, world: int, samples: int, dtype: str = "float64") -> Drift:
    """Propagate the gradient bound through the steps: an Adam step magnifies by 2κ·lr/ε, the model by H."""
    fresh = max(
        math.hypot(*gradient_bounds(g, world=world, samples=samples, dtype=dtype).values())
        for g in course.gradients
    )
    steps = len(course.gradients)
    sensitivity = _step_sensitivity(recipe)
    error = 0.0
    for _ in range(steps):
        # Rounding of the update itself adds a few units in the last place of every parameter.
        own = 8 * EPS[dtype] * math.hypot(*(float(p.double().norm()) for p in course.parameters.values()))
        error = error + sensitivity * (fresh + CURVATURE * error) + own
    gradient = fresh + CURVATURE * error
    largest = max(float(g.abs().max()) for window in course.gradients for g in window.values())
    moment = 2 * gradient + 8 * EPS[dtype] * max(course.norms)
    loss = max(course.norms) * error + SAFETY * EPS[dtype] * samples * max(map(abs, course.losses))
    return Drift(gradient, error, moment, 2 * largest * moment, loss)


def _step_sensitivity(recipe: Recipe) -> float:
    """Change of a parameter for a change of the gradient; clipping doubles it (docs/numerics.md)."""
    clipping = 1.0 if recipe.max_norm is None else 2.0
    if recipe.optimizer == "sgd":
        return clipping * recipe.lr
    return clipping * 2.1 * recipe.lr / recipe.eps
