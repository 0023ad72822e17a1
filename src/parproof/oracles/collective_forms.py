"""Functional collectives by definition, with gradients by autograd through the definition, in one process."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from parproof.workloads.collective_forms import (
    GRADIENT_SLOT,
    ROOT,
    TARGETS,
    Form,
    input_shapes,
    rows_to,
)
from parproof.workloads.collectives import coded


def inputs(form: Form, dtype: str, rank: int, me: int) -> list[Tensor]:
    """What a rank hands in; `rank` is the global rank, `me` its place in the group."""
    return [
        coded(rank, slot, shape, dtype, form.reduce_op) for slot, shape in enumerate(input_shapes(form, me))
    ]


def incoming(form: Form, dtype: str, rank: int, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Gradients of the rank's own loss with respect to its outputs."""
    kind = form.reduce_op or "sum"
    return [coded(rank, GRADIENT_SLOT + slot, tuple(s), dtype, kind) for slot, s in enumerate(shapes)]


def outputs(form: Form, held: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
    """held[me][k] → what each rank gets, for each of its inputs. Differentiable."""
    single = form.op.removesuffix("_coalesced")
    columns = list(zip(*held, strict=True))
    per_column = [_one(single, form, column) for column in columns]
    return [[column[me] for column in per_column] for me in range(len(held))]


def _one(op: str, form: Form, xs: Sequence[Tensor]) -> list[Tensor]:
    p = len(xs)
    if op == "all_gather":
        return [torch.cat(list(xs), form.dim)] * p
    if op == "broadcast":
        return [xs[ROOT]] * p
    if op == "permute":
        return [xs[TARGETS.index(me)] for me in range(p)]
    if op == "all_to_all":
        blocks = [x.split(rows_to(j)) for j, x in enumerate(xs)]
        return [torch.cat([blocks[j][me] for j in range(p)]) for me in range(p)]
    total = _total(xs, str(form.reduce_op))
    return [total] * p if op == "all_reduce" else list(total.tensor_split(p, form.dim))


def _total(xs: Sequence[Tensor], reduce_op: str) -> Tensor:
    wide = torch.stack(list(xs))
    if not wide.dtype.is_floating_point:
        total = wide.long().sum(0)
        return (total // len(xs) if reduce_op == "avg" else total).to(wide.dtype)
    total = wide.double().sum(0)
    return (total / len(xs) if reduce_op == "avg" else total).to(wide.dtype)


def values(form: Form, dtype: str, members: Sequence[int]) -> list[list[Tensor]]:
    """Every rank's outputs."""
    return outputs(form, [inputs(form, dtype, rank, me) for me, rank in enumerate(members)])


def gradients(form: Form, dtype: str, members: Sequence[int]) -> list[list[Tensor]]:
    """Every rank's input gradients of the sum of all ranks' losses; exact, as the values are."""
    held = [
        [x.clone().requires_grad_() for x in inputs(form, dtype, rank, me)] for me, rank in enumerate(members)
    ]
    made = outputs(form, held)
    behind = [
        incoming(form, dtype, rank, [tuple(y.shape) for y in made[me]]) for me, rank in enumerate(members)
    ]
    leaves = [x for xs in held for x in xs]
    roots = [y for ys in made for y in ys]
    found = torch.autograd.grad(roots, leaves, [g for gs in behind for g in gs], allow_unused=True)
    flat = iter(torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True))
    return [[next(flat) for _ in xs] for xs in held]
