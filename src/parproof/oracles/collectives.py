"""What every buffer holds after a collective: the definition, applied to all ranks' inputs in one process.

Reductions are made in int64 or float64 and cast once, so that they share no rounding with a subject.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from parproof.workloads.collective_cases import BEFORE_SLOT, Buffer, Case, buffers, splits_of
from parproof.workloads.collectives import coded


def before(case: Case, buffer: Buffer, rank: int) -> Tensor:
    """What a rank's buffer holds before the call; `rank` is the global rank."""
    kind = case.reduce_op if buffer.slot < BEFORE_SLOT else None
    return coded(rank, buffer.slot + 4 * case.number, buffer.shape, case.dtype, kind)


def reduced(values: Sequence[Tensor], op: str) -> Tensor:
    """The elementwise reduction, exact, in the dtype of the values."""
    dtype = values[0].dtype
    stack = torch.stack(list(values))
    if dtype == torch.bool:
        return _reduced_bool(stack, op)
    wide = stack.double() if dtype.is_floating_point else stack.long()
    if op == "avg":
        total = wide.sum(0)
        return (total / len(values) if dtype.is_floating_point else total // len(values)).to(dtype)
    if op in ("sum", "product", "min", "max"):
        total, product = wide.sum(0), wide.prod(0)
        return {"sum": total, "product": product, "min": wide.amin(0), "max": wide.amax(0)}[op].to(dtype)
    result = wide[0].clone()
    for other in wide[1:]:
        result = {"band": result & other, "bor": result | other, "bxor": result ^ other}[op]
    return result.to(dtype)


def _reduced_bool(stack: Tensor, op: str) -> Tensor:
    if op in ("sum", "max", "bor"):
        return stack.any(0)
    if op == "bxor":
        return stack.sum(0) % 2 == 1
    return stack.all(0)


def after(case: Case, members: Sequence[int]) -> list[list[Tensor]]:
    """Per rank of the group: what each of its buffers (in the order of `buffers`) holds after the call.

    members   global ranks in group order
    """
    p = len(members)
    held = [[before(case, b, members[i]) for b in buffers(case, p, i)] for i in range(p)]
    if case.op in ("all_reduce", "reduce", "broadcast"):
        return _in_place(case, held)
    inputs, outputs = [], []
    for i in range(p):
        roles = [b.role for b in buffers(case, p, i)]
        inputs.append([t for t, role in zip(held[i], roles, strict=True) if role == "in"])
        outputs.append([b.shape for b in buffers(case, p, i) if b.role == "out"])
    return [inputs[i] + _outputs(case, inputs, outputs[i], i) for i in range(p)]


def _in_place(case: Case, held: list[list[Tensor]]) -> list[list[Tensor]]:
    if case.op == "broadcast":
        return [held[case.root or 0] for _ in held]
    total = reduced([h[0] for h in held], str(case.reduce_op))
    if case.op == "all_reduce":
        return [[total] for _ in held]
    return [[total] if i == case.root else h for i, h in enumerate(held)]


def _outputs(case: Case, inputs: list[list[Tensor]], shapes: list[tuple[int, ...]], me: int) -> list[Tensor]:
    p, op = len(inputs), case.op
    if op == "scatter":
        return [inputs[case.root or 0][me]]
    if op in ("all_gather", "gather"):
        return [inputs[j][0] for j in range(len(shapes))]
    if op == "all_gather_single":
        return [torch.cat([i[0].reshape(-1) for i in inputs]).reshape(shapes[0])]
    if op == "reduce_scatter":
        return [reduced([i[me] for i in inputs], str(case.reduce_op))]
    if op == "reduce_scatter_single":
        parts = [i[0].reshape(-1).tensor_split(p)[me] for i in inputs]
        return [reduced(parts, str(case.reduce_op)).reshape(shapes[0])]
    if op == "all_to_all":
        return [inputs[j][me] for j in range(p)]
    return [_joined_rows(case, inputs, shapes[0], me)]


def _joined_rows(case: Case, inputs: list[list[Tensor]], shape: tuple[int, ...], me: int) -> Tensor:
    """all_to_all_single: the rows that each rank has for `me`, one after the other."""
    p = len(inputs)
    parts = []
    for j, (x,) in enumerate(inputs):
        _, sent = splits_of(case, p, j)
        rows = sent or [x.shape[0] // p] * p
        parts.append(x[sum(rows[:me]) : sum(rows[: me + 1])])
    return torch.cat(parts).reshape(shape)
