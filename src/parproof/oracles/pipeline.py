"""One process, all stages in a row, micro-batch by micro-batch: what any schedule has to arrive at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

_Found = list[dict[str, Tensor | None]]


@dataclass(frozen=True)
class Answer:
    """After training: losses[step] in order of micro-batches (replicas side by side); of the last step gradients[stage][name]; parameters at the end.

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
    rows: Sequence[int],
    lr: float,
    windows: int = 1,
    descending: bool = False,
) -> Answer:
    """Plain gradient descent over batches[replica]; one entry of `batches` where data is not split.

    rows         of each micro-batch of a step. The gradient is that of the mean over all rows, and the mean over
                 replicas. Where micro-batches are equal, it is made of theirs, in the order a schedule adds them
                 up; where they are not, of the loss of the whole batch, which knows nothing of micro-batches.
    windows      steps for each update; their gradients add up
    descending   add up the gradients of micro-batches from the last to the first (schedules that run backward
                 in reverse): floating-point addition is not associative
    Each part of the graph is one autograd.grad call on fresh leaves, so that nothing accumulates by itself.
    """
    losses: list[list[Tensor]] = []
    total: list[_Found] | None = None
    answer: list[_Found] = []
    for step, data in enumerate(zip(*batches, strict=True)):
        found = [_window(stages, one, loss, rows, descending) for one in data]
        losses.append(
            [value for values in zip(*(part[0] for part in found), strict=True) for value in values]
        )
        window = [
            [_mean([part[k] for part in parts]) for k in range(len(stages))]
            for parts in ([one[1] for one in found], [one[2] for one in found])
        ]
        total = window if total is None else [_add(*pair) for pair in zip(total, window, strict=True)]
        if (step + 1) % windows:
            continue
        answer, total = total, None
        with torch.no_grad():
            for parameter, g in dict(_pairs(stages, answer[0])).items():
                parameter.sub_(lr * g)
    parameters = [{n: p.detach().clone() for n, p in s.named_parameters()} for s in stages]
    return Answer(losses, answer[0], parameters, answer[1])


def _add(left: _Found, right: _Found) -> _Found:
    return [_sum(pair) for pair in zip(left, right, strict=True)]


def _pairs(
    stages: Sequence[nn.Module], gradients: Sequence[dict[str, Tensor | None]]
) -> list[tuple[nn.Parameter, Tensor]]:
    return [
        (parameter, g)
        for stage, found in zip(stages, gradients, strict=True)
        for name, parameter in stage.named_parameters()
        if (g := found[name]) is not None
    ]


def _window(
    stages: Sequence[nn.Module],
    batch: tuple[Tensor, Tensor],
    loss: Callable[[Tensor, Tensor], Tensor],
    rows: Sequence[int],
    descending: bool,
) -> tuple[list[Tensor], _Found, _Found]:
    """(losses, mean gradients, mean |gradients|) of one step."""
    parameters = {(k, name): p for k, s in enumerate(stages) for name, p in s.named_parameters()}
    trained = [key for key, p in parameters.items() if p.requires_grad]
    weights = [parameters[key] for key in trained]
    losses = [
        loss(_through(stages, x), target)
        for x, target in zip(*(part.split(list(rows)) for part in batch), strict=True)
    ]
    each = [
        (torch.autograd.grad(value, weights), n / sum(rows)) for value, n in zip(losses, rows, strict=True)
    ]
    if descending:
        each.reverse()
    whole: Sequence[Tensor] | None = None
    if len(set(rows)) > 1:
        whole = torch.autograd.grad(loss(_through(stages, batch[0]), batch[1]), weights)
    gradients: _Found = [dict.fromkeys(n for n, _ in s.named_parameters()) for s in stages]
    terms: _Found = [dict(found) for found in gradients]
    for number, (k, name) in enumerate(trained):
        parts = [found[number] for found, _ in each]
        gradients[k][name] = _added(parts) / len(rows) if whole is None else whole[number]
        terms[k][name] = torch.stack([found[number].abs() * share for found, share in each]).sum(0)
    return [value.detach() for value in losses], gradients, terms


def _through(stages: Sequence[nn.Module], x: Tensor) -> Tensor:
    """Output of the last stage."""
    value: tuple[Tensor, ...] = (x,)
    for stage in stages:
        out = stage(*value)
        value = out if isinstance(out, tuple) else (out,)
    return value[0]


def _added(parts: Sequence[Tensor]) -> Tensor:
    """One after the other."""
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


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
