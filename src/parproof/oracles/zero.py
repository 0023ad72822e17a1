"""The single-process answer to PAR-ZERO-STATE: whole batch, textbook SGD, Adam and AdamW.

No accumulation, no sharding: the loss of all samples at once. `gradient_in_rank_order` is the second answer,
for two ranks, where floating-point addition leaves no freedom: (rank 0 + rank 1), bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from parproof.workloads import zero as workload


class Recipe(Protocol):
    """What of a plan concerns a single process; the words of the subjects' StatePlan."""

    @property
    def optimizer(self) -> str:
        """sgd, adam or adamw."""

    @property
    def lr(self) -> float:
        """Learning rate."""

    @property
    def betas(self) -> tuple[float, float]:
        """Decay of the two moments."""

    @property
    def eps(self) -> float:
        """Added to the root of the second moment."""

    @property
    def weight_decay(self) -> float:
        """Coupled for sgd and adam, decoupled for adamw."""

    @property
    def max_norm(self) -> float | None:
        """Clip to this norm."""

    @property
    def no_decay(self) -> tuple[str, ...]:
        """Parameters without decay."""


class Course(Protocol):
    """What of a course concerns a single process."""

    @property
    def kind(self) -> str:
        """Which workload."""

    @property
    def plan(self) -> Recipe:
        """How it is trained."""

    @property
    def windows(self) -> int:
        """Optimizer steps."""


@dataclass
class Trajectory:
    """Per window: loss before the update, gradients before clipping, norm. At the end: parameters and state."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    gradients: list[dict[str, Tensor]] = field(default_factory=list)
    parameters: dict[str, Tensor] = field(default_factory=dict)
    exp_avg: dict[str, Tensor] = field(default_factory=dict)
    exp_avg_sq: dict[str, Tensor] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)


def single_process(kind: str, recipe: Recipe, windows: int, dtype: torch.dtype = torch.float64) -> Trajectory:
    """Train on the whole batch. A parameter without a gradient is left alone: no decay, no step."""
    r = recipe
    known = (r.optimizer, r.lr, r.betas, r.eps, r.weight_decay, r.max_norm, r.no_decay)
    key = (kind, windows, dtype, *known)
    if key not in _TRAJECTORIES:
        _TRAJECTORIES[key] = _train(kind, recipe, windows, dtype)
    return _TRAJECTORIES[key]


def on(course: Course) -> Trajectory:
    """The answer to a course from its beginning."""
    return single_process(course.kind, course.plan, course.windows)


_TRAJECTORIES: dict[tuple[object, ...], Trajectory] = {}


def _train(kind: str, recipe: Recipe, windows: int, dtype: torch.dtype) -> Trajectory:
    module = workload.build(kind, dtype)
    named = dict(module.named_parameters())
    out = Trajectory()
    for window in range(windows):
        module.zero_grad()
        loss = module(*workload.global_batch(kind, window, dtype))
        loss.backward()
        found = {name: p.grad.clone() for name, p in named.items() if p.grad is not None}
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in found.values()))
        out.losses.append(float(loss.detach()))
        out.norms.append(norm)
        out.gradients.append(found)
        factor = 1.0 if recipe.max_norm is None else min(1.0, recipe.max_norm / (norm + 1e-6))
        for name, gradient in found.items():
            _update(out, recipe, name, named[name].data, factor * gradient)
    out.parameters = {name: p.detach().clone() for name, p in named.items()}
    return out


def _update(out: Trajectory, recipe: Recipe, name: str, theta: Tensor, g: Tensor) -> None:
    decay = 0.0 if name in recipe.no_decay else recipe.weight_decay
    if recipe.optimizer == "adamw":
        theta -= recipe.lr * decay * theta
    else:
        g = g + decay * theta
    t = out.steps[name] = out.steps.get(name, 0) + 1
    if recipe.optimizer == "sgd":
        theta -= recipe.lr * g
        return
    b1, b2 = recipe.betas
    m = out.exp_avg[name] = b1 * out.exp_avg.get(name, torch.zeros_like(g)) + (1 - b1) * g
    v = out.exp_avg_sq[name] = b2 * out.exp_avg_sq.get(name, torch.zeros_like(g)) + (1 - b2) * g * g
    theta -= recipe.lr * (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + recipe.eps)


def loss_at(kind: str, parameters: Mapping[str, Tensor], window: int) -> tuple[float, float]:
    """(loss of a window's whole batch at these parameters, the same with every number made positive), in float64.

    Of a linear model the second is the sum of the absolute values of all terms that the first adds up.
    """
    module = workload.build(kind, torch.float64)
    batch = workload.global_batch(kind, window, torch.float64)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(parameters[name].view_as(parameter))
        loss = float(module(*batch))
        for parameter in module.parameters():
            parameter.abs_()
        return loss, float(module(*(numbers.abs() for numbers in batch)))


def gradient_in_rank_order(kind: str, dtype: str, *, world: int, accumulation: int) -> dict[str, Tensor]:
    """Step-1 gradients as each rank accumulates them and the ranks are added in order; division at the end."""
    module = workload.build(kind, getattr(torch, dtype))
    batch = workload.global_batch(kind, 0, getattr(torch, dtype))
    total: dict[str, Tensor] = {}
    for rank in range(world):
        module.zero_grad()
        for micro in range(accumulation):
            part = workload.share(batch, rank * accumulation + micro, world * accumulation)
            (module(*part) / accumulation).backward()
        for name, parameter in module.named_parameters():
            if parameter.grad is not None:
                total[name] = total[name] + parameter.grad if name in total else parameter.grad.clone()
    return {name: gradient / world for name, gradient in total.items()}
