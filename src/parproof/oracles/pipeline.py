"""One process, all stages in a row, micro-batch by micro-batch: what any schedule has to arrive at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Answer:
    """After training: losses[step][micro]; of the last step gradients[stage][name]; parameters at the end.

    terms is the sum of |gradient| over micro-batches: what a rounding error is relative to.
    """

    losses: list[list[Tensor]]
    gradients: list[dict[str, Tensor | None]]
    parameters: list[dict[str, Tensor]]
    terms: list[dict[str, Tensor | None]]


def train(
    stages: Sequence[nn.Module],
    batches: Sequence[Sequence[tuple[Tensor, Tensor]]],
    loss: Callable[[Tensor, Tensor], Tensor],
    *,
    num_micro: int,
    lr: float,
    descending: bool = False,
) -> Answer:
    """Plain gradient descent over batches[replica][step]; one entry of `batches` where data is not split.

    num_micro    micro-batches of a step; the gradient is their mean, and the mean over replicas
    descending   add up the gradients of micro-batches from the last to the first (schedules that run backward
                 in reverse): floating-point addition is not associative
    Each part of the graph is one autograd.grad call on fresh leaves, so that nothing accumulates by itself.
    """
    losses, answer = [], None
    for step in range(len(batches[0])):
        found = [_window(stages, replica[step], loss, num_micro, descending) for replica in batches]
        losses.append([value for part in found for value in part[0]])
        gradients = [_mean([part[1][k] for part in found]) for k in range(len(stages))]
        terms = [_mean([part[2][k] for part in found]) for k in range(len(stages))]
        with torch.no_grad():
            for parameter, g in {p: g for p, g in _pairs(stages, gradients)}.items():
                parameter -= lr * g
        answer = gradients, terms
    assert answer is not None
    parameters = [{n: p.detach().clone() for n, p in s.named_parameters()} for s in stages]
    return Answer(losses, answer[0], parameters, answer[1])


def accumulated(
    stages: Sequence[nn.Module],
    batches: Sequence[tuple[Tensor, Tensor]],
    loss: Callable[[Tensor, Tensor], Tensor],
    num_micro: int,
) -> list[dict[str, Tensor | None]]:
    """Gradients of several steps without an update: the sum of each step's mean."""
    each = [_window(stages, one, loss, num_micro, False)[1] for one in batches]
    return [_sum([part[k] for part in each]) for k in range(len(stages))]


def _pairs(
    stages: Sequence[nn.Module], gradients: Sequence[dict[str, Tensor | None]]
) -> list[tuple[nn.Parameter, Tensor]]:
    return [
        (parameter, g)
        for stage, found in zip(stages, gradients, strict=True)
        for name, parameter in stage.named_parameters()
        if (g := found[name]) is not None
    ]


_Found = list[dict[str, Tensor | None]]


def _window(
    stages: Sequence[nn.Module],
    batch: tuple[Tensor, Tensor],
    loss: Callable[[Tensor, Tensor], Tensor],
    num_micro: int,
    descending: bool,
) -> tuple[list[Tensor], _Found, _Found]:
    """(losses, mean gradients, mean |gradients|) of one step."""
    parameters = {(k, name): p for k, s in enumerate(stages) for name, p in s.named_parameters()}
    trained = [key for key, p in parameters.items() if p.requires_grad]
    losses, each = [], []
    for x, target in zip(*(part.chunk(num_micro) for part in batch), strict=True):
        value: tuple[Tensor, ...] = (x,)
        for stage in stages:
            out = stage(*value)
            value = out if isinstance(out, tuple) else (out,)
        losses.append(loss(value[0], target))
        each.append(torch.autograd.grad(losses[-1], [parameters[key] for key in trained]))
    if descending:
        each.reverse()
    gradients: _Found = [dict.fromkeys(n for n, _ in s.named_parameters()) for s in stages]
    terms: _Found = [dict(found) for found in gradients]
    for (k, name), parts in zip(trained, zip(*each, strict=True), strict=True):
        total = parts[0].clone()
        for part in parts[1:]:
            total += part
        gradients[k][name] = total / num_micro
        terms[k][name] = torch.stack([part.abs() for part in parts]).sum(0) / num_micro
    return [value.detach() for value in losses], gradients, terms


def _sum(parts: Sequence[dict[str, Tensor | None]]) -> dict[str, Tensor | None]:
    made: dict[str, Tensor | None] = {}
    for name in parts[0]:
        known = [g for part in parts if (g := part[name]) is not None]
        made[name] = torch.stack(known).sum(0) if known else None
    return made


def _mean(parts: Sequence[dict[str, Tensor | None]]) -> dict[str, Tensor | None]:
    return {n: None if g is None else g / len(parts) for n, g in _sum(parts).items()}


def whole_backward(
    stage: nn.Module, inputs: Sequence[Tensor], output_grads: Sequence[Tensor]
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """One stage: gradients of its inputs and of its parameters by one pass."""
    leaves = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
    out = stage(*leaves)
    outputs = [out] if isinstance(out, Tensor) else list(out)
    pairs = [(o, g) for o, g in zip(outputs, output_grads, strict=True) if o.requires_grad]
    wanted = [x for x in (*leaves, *stage.parameters()) if x.requires_grad]
    found = torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True)
    by_id = {id(x): g for x, g in zip(wanted, found, strict=True)}
    return [by_id.get(id(x)) for x in leaves], [by_id.get(id(p)) for p in stage.parameters()]
