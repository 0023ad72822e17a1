"""Unsplit answers for the tensor-parallel experiment: one process, whole weights, float64, plain autograd."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from parproof.workloads.tensor import Case


@dataclass(frozen=True)
class Answer:
    """What the whole layer gives, in float64.

    reduction_length   the longest sum in it: what an error bound may grow with
    absolute_norms     for sums whose true value is zero (key bias): the norm of the same sums of absolute values
    """

    output: Tensor
    input_gradient: Tensor | None
    gradients: dict[str, Tensor]
    reduction_length: int
    absolute_norms: dict[str, float]

    @property
    def gradient_norm(self) -> float:
        """L2 norm of all parameter gradients together."""
        return math.sqrt(sum(float(g.square().sum()) for g in self.gradients.values()))


_KEYS = "all keys"


def unsplit(case: Case) -> Answer:
    """Forward and backward of the whole layer."""
    params = {name: value.double().requires_grad_() for name, value in case.params().items()}
    x = case.input()
    if x.is_floating_point():
        x = x.double().requires_grad_()
    output = _LAYERS[case.kind](case, params, x)
    torch.autograd.backward(output, case.upstream().double())
    sizes = [x.shape[:-1].numel(), *(max(shape) for shape in case.shapes.values()), case.input_shape[-1]]
    gradients = {name: p.grad for name, p in params.items() if p.grad is not None}
    terms = gradients.pop(_KEYS, None)
    absolute = {} if terms is None else {"k.bias": float(terms.abs().sum(dim=(0, 1)).norm())}
    return Answer(output.detach(), x.grad, gradients, max(sizes), absolute)


def _linear(case: Case, params: dict[str, Tensor], x: Tensor) -> Tensor:
    return x @ params["weight"].T + params["bias"]


def _affine(params: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    y = x @ params[f"{name}.weight"].T
    return y + params[f"{name}.bias"] if f"{name}.bias" in params else y


def _mlp(case: Case, params: dict[str, Tensor], x: Tensor) -> Tensor:
    activation = case.options["activation"]
    if activation in ("swiglu", "geglu"):
        both = _affine(params, "gate_up", x)
        half = both.shape[-1] // 2
        gate = both[..., :half]
        opened = gate * torch.sigmoid(gate) if activation == "swiglu" else _gelu(gate)
        return _affine(params, "down", opened * both[..., half:])
    hidden = _affine(params, "up", x)
    return _affine(params, "down", _gelu(hidden) if activation == "gelu" else hidden * (hidden > 0))


def _gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def _attention(case: Case, params: dict[str, Tensor], x: Tensor) -> Tensor:
    """Head by head, token by token where it matters: no broadcasting to get wrong."""
    q_heads, kv_heads = case.options["q_heads"], case.options["kv_heads"]
    q, k, v = (_affine(params, name, x) for name in "qkv")
    k.retain_grad()
    params[_KEYS] = k
    width = q.shape[-1] // q_heads
    tokens = x.shape[1]
    visible = torch.tril(torch.ones(tokens, tokens, dtype=torch.bool))
    mixed = []
    for head in range(q_heads):
        shared = head * kv_heads // q_heads
        mine, theirs = slice(head * width, (head + 1) * width), slice(shared * width, (shared + 1) * width)
        scores = torch.einsum("bsd,btd->bst", q[..., mine], k[..., theirs]) / math.sqrt(width)
        weights = torch.softmax(scores.masked_fill(~visible, -math.inf), -1)
        mixed.append(torch.einsum("bst,btd->bsd", weights, v[..., theirs]))
    return _affine(params, "o", torch.cat(mixed, -1))


def _embedding(case: Case, params: dict[str, Tensor], x: Tensor) -> Tensor:
    return params["weight"][x]


def _loss(case: Case, params: dict[str, Tensor], x: Tensor) -> Tensor:
    (targets,) = case.extra()
    counts = [i for i, t in enumerate(targets.tolist()) if t != case.options["ignore_index"]]
    # Without its largest element a row loses nothing, and large logits lose their rounding error.
    rows = [x[i] - x[i].max().detach() for i in counts]
    each = [row.exp().sum().log() - row[targets[i]] for row, i in zip(rows, counts, strict=True)]
    return torch.stack(each).mean()


def _sequence(case: Case, params: dict[str, Tensor], x: Tensor) -> Tensor:
    if case.options["norm"] == "rms":
        normal = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * params["norm.weight"]
    else:
        normal = functional.layer_norm(x, x.shape[-1:], params["norm.weight"], params["norm.bias"], 1e-5)
    return _mlp(case, params, normal)


_LAYERS = {
    "column": _linear,
    "row": _linear,
    "mlp": _mlp,
    "attention": _attention,
    "embedding": _embedding,
    "loss": _loss,
    "sequence": _sequence,
}
