"""Functional collectives by definition, with gradients by autograd through the definition, in one process."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from parproof.workloads.collective_forms import (
    GRADIENT_SLOT,
    ROOT,
    Form,
    FormCase,
    input_shapes,
    rows_to,
    takes,
    targets,
)
from parproof.workloads.collectives import coded


def inputs(case: FormCase, p: int, rank: int, me: int) -> list[Tensor]:
    """What a rank hands in; `rank` is the global rank, `me` its place in the group of p."""
    kind = case.form.reduce_op
    return [
        coded(rank, slot, shape, case.dtype, kind) for slot, shape in enumerate(input_shapes(case, p, me))
    ]


def incoming(case: FormCase, rank: int, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Gradients of the rank's own loss with respect to its outputs."""
    kind = case.form.reduce_op or "sum"
    return [coded(rank, GRADIENT_SLOT + slot, tuple(s), case.dtype, kind) for slot, s in enumerate(shapes)]


def outputs(form: Form, held: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
    """held[me][k] → what each rank gets, for each of its inputs; nothing where it has no result. Differentiable."""
    single = form.op.removesuffix("_coalesced")
    columns = list(zip(*held, strict=True))
    per_column = [_one(single, form, column) for column in columns]
    return [[column[me] for column in per_column] if takes(form, me) else [] for me in range(len(held))]


def _one(op: str, form: Form, xs: Sequence[Tensor]) -> list[Tensor]:
    p = len(xs)
    if op in ("all_gather", "all_gather_single", "gather"):
        return [torch.cat(list(xs), form.dim)] * p
    if op == "broadcast":
        return [xs[ROOT]] * p
    if op == "permute":
        return [xs[targets(p).index(me)] for me in range(p)]
    if op == "scatter":
        return list(xs[ROOT].tensor_split(p))
    if op == "all_to_all_list":
        return [torch.cat([x.tensor_split(p)[me] for x in xs]) for me in range(p)]
    if op == "all_to_all":
        blocks = [x.split(rows_to(p, j)) for j, x in enumerate(xs)]
        return [torch.cat([blocks[j][me] for j in range(p)]) for me in range(p)]
    total = _total(xs, str(form.reduce_op))
    return [total] * p if op in ("all_reduce", "reduce") else list(total.tensor_split(p, form.dim))


def _total(xs: Sequence[Tensor], reduce_op: str) -> Tensor:
    """The reduction, made in int64 or float64 and cast once."""
    dtype = xs[0].dtype
    wide = torch.stack(list(xs))
    wide = wide.double() if dtype.is_floating_point else wide.long()
    if reduce_op == "avg":
        total = wide.sum(0) / len(xs)
    elif reduce_op == "product":
        total = wide.prod(0)
    elif reduce_op == "sum":
        total = wide.sum(0)
    else:
        total = wide.amin(0) if reduce_op == "min" else wide.amax(0)
    return total.to(dtype)


def values(case: FormCase, members: Sequence[int]) -> list[list[Tensor]]:
    """Every rank's outputs."""
    return outputs(case.form, [inputs(case, len(members), rank, me) for me, rank in enumerate(members)])


def gradients(case: FormCase, members: Sequence[int]) -> list[list[Tensor]]:
    """Every rank's input gradients of the sum of all ranks' losses; exact, as the values are.

    Ranks that share a minimum or maximum share its gradient in equal parts.
    """
    held = [
        [x.clone().requires_grad_() for x in inputs(case, len(members), rank, me)]
        for me, rank in enumerate(members)
    ]
    made = outputs(case.form, held)
    behind = [incoming(case, rank, [tuple(y.shape) for y in made[me]]) for me, rank in enumerate(members)]
    leaves = [x for xs in held for x in xs]
    roots = [y for ys in made for y in ys]
    found = torch.autograd.grad(roots, leaves, [g for gs in behind for g in gs], allow_unused=True)
    flat = iter(torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True))
    return [[next(flat) for _ in xs] for xs in held]
