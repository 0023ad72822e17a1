"""Plain SGD, Adam and AdamW on flat slices, with optional float32 master copies."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from parproof.subjects.zero_protocol import StatePlan


class SliceOptimizer:
    """State for the slices this rank owns: name of the parameter → its moments, step count and master copy."""

    def __init__(self, plan: StatePlan) -> None:
        self.plan = plan
        self.state: dict[str, dict[str, Tensor]] = {}
        self.num_steps: dict[str, int] = {}

    def adopt(self, name: str, parameter: Tensor) -> None:
        """Make state for a slice of a parameter."""
        self.num_steps[name] = 0
        self.state[name] = {}
        work = torch.float32 if self.plan.mixed_bf16 else parameter.dtype
        if self.plan.mixed_bf16:
            self.state[name]["master"] = parameter.detach().to(work, copy=True)
        if self.plan.optimizer != "sgd":
            for moment in ("exp_avg", "exp_avg_sq"):
                self.state[name][moment] = torch.zeros_like(parameter, dtype=work)

    def update(self, name: str, parameter: Tensor, gradient: Tensor) -> None:
        """One step for one slice, in place."""
        state = self.state[name]
        master = state.get("master", parameter)
        self.num_steps[name] += 1
        decay = 0.0 if name in self.plan.no_decay else self.plan.weight_decay
        self._apply(master, gradient.to(master.dtype), state, self.num_steps[name], decay)
        if master is not parameter:
            parameter.copy_(master)

    def _apply(
        self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Tensor], step: int, decay: float
    ) -> None:
        plan = self.plan
        if plan.optimizer == "adamw":
            parameter.mul_(1 - plan.lr * decay)
        elif decay:
            gradient = gradient + decay * parameter
        if plan.optimizer == "sgd":
            parameter.sub_(plan.lr * gradient)
            return
        beta1, beta2 = plan.betas
        first, second = state["exp_avg"], state["exp_avg_sq"]
        first.mul_(beta1).add_((1 - beta1) * gradient)
        second.mul_(beta2).add_((1 - beta2) * gradient * gradient)
        correction = self.correction(step)
        denominator = second.sqrt() / correction[1] + plan.eps
        parameter.sub_(plan.lr * (first / correction[0]) / denominator)

    def correction(self, step: int) -> tuple[float, float]:
        """Bias corrections of the first moment and of the square root of the second."""
        return 1 - self.plan.betas[0] ** step, math.sqrt(1 - self.plan.betas[1] ** step)
