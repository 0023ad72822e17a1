"""Inputs of the tensor-parallel experiment: small layers with values that encode their place.

The same case gives the same tensors in every process, so only the case travels.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """One layer with its whole parameters, input and upstream gradient.

    kind       column, row, mlp, attention, embedding, loss, sequence
    integers   small integers: every sum is exact in float32 whatever the order, so equality is the tolerance
    layout     of the input in memory: contiguous, transposed (first two dims), strided (every other column)
    scale      factor on normal values (large logits)
    """

    name: str
    kind: str
    shapes: Mapping[str, Shape]
    input_shape: Shape
    output_shape: Shape
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float64"
    integers: bool = False
    layout: str = "contiguous"
    scale: float = 1.0

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of parameters and activations."""
        found: torch.dtype = getattr(torch, self.dtype)
        return found

    def params(self) -> dict[str, Tensor]:
        """Whole parameters by name."""
        return {name: self._values(name, shape) for name, shape in self.shapes.items()}

    def upstream(self) -> Tensor:
        """The gradient handed to the whole output."""
        return self._values("upstream", self.output_shape)

    def input(self) -> Tensor:
        """The whole input; ids for an embedding."""
        if self.kind == "embedding":
            return self._ids("input", self.input_shape, self.shapes["weight"][0])
        return laid_out(self._values("input", self.input_shape) * self.scale, self.layout)

    def extra(self) -> tuple[Tensor, ...]:
        """Targets of a loss: every third one is ignored, the first two are the ends of the vocabulary."""
        if self.kind != "loss":
            return ()
        targets = self._ids("targets", self.input_shape[:1], self.input_shape[1])
        targets[::3] = self.options["ignore_index"]
        return (targets,)

    def _generator(self, name: str) -> torch.Generator:
        return torch.Generator().manual_seed(zlib.crc32(f"{self.name}/{name}".encode()))

    def _values(self, name: str, shape: Shape) -> Tensor:
        generator = self._generator(name)
        if self.integers:
            values = torch.randint(-9, 10, shape, generator=generator)
            # A bias may be shared out over 2, 3 or 4 ranks before the sum (DTensor does): still integers then.
            return (12 * values if name.endswith("bias") else values).to(self.torch_dtype)
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        if name == "norm.weight":
            values = 1 + 0.1 * values
        elif name.endswith("weight"):
            # As models are initialised: activations stay near 1, and softmax is not one-hot.
            values = values / math.sqrt(shape[-1])
        # Few digits: exact in every dtype used, and differences of logits are exact too.
        return ((values * 1024).round() / 1024).to(self.torch_dtype)

    def _ids(self, name: str, shape: Shape, vocabulary: int) -> Tensor:
        ids = torch.randint(0, vocabulary, shape, generator=self._generator(name))
        ids.view(-1)[1], ids.view(-1)[2] = 0, vocabulary - 1
        return ids


def of_group(case: Case, number: int) -> Case:
    """The same layer with values of its own for each group, which are made from the name."""
    return replace(case, name=f"{case.name} of group {number}") if number else case


def laid_out(x: Tensor, layout: str) -> Tensor:
    """The same values in other memory."""
    if layout == "transposed":
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    if layout == "strided":
        wide = x.new_full((*x.shape[:-1], 2 * x.shape[-1]), 77)
        wide[..., ::2] = x
        return wide[..., ::2]
    return x


def column(name: str, out: int = 12, *, gather: bool = True, layout: str = "contiguous", **more: Any) -> Case:
    """x [2, 5, 8] → [2, 5, out]."""
    shapes = {"weight": (out, 8), "bias": (out,)}
    return Case(
        name, "column", shapes, (2, 5, 8), (2, 5, out), {"gather_output": gather}, layout=layout, **more
    )


def row(name: str, width: int = 12, *, split: bool = True, layout: str = "contiguous", **more: Any) -> Case:
    """x [2, 5, width] → [2, 5, 8]."""
    shapes = {"weight": (8, width), "bias": (8,)}
    options = {"input_is_split": split}
    return Case(name, "row", shapes, (2, 5, width), (2, 5, 8), options, layout=layout, **more)


def _mlp_shapes(width: int, hidden: int, activation: str, bias: bool) -> dict[str, Shape]:
    gated = activation in ("swiglu", "geglu")
    first, rows = ("gate_up", 2 * hidden) if gated else ("up", hidden)
    shapes: dict[str, Shape] = {f"{first}.weight": (rows, width), "down.weight": (width, hidden)}
    if bias:
        shapes |= {f"{first}.bias": (rows,), "down.bias": (width,)}
    return shapes


def mlp(name: str, activation: str, hidden: int = 24, *, bias: bool = True, **more: Any) -> Case:
    """x [2, 5, 8] → [2, 5, 8]."""
    shapes = _mlp_shapes(8, hidden, activation, bias)
    return Case(name, "mlp", shapes, (2, 5, 8), (2, 5, 8), {"activation": activation}, **more)


def attention(name: str, q_heads: int, kv_heads: int, *, bias: bool = True, **more: Any) -> Case:
    """x [2, 7, 16] → [2, 7, 16]; head width 4."""
    q, kv, width = 4 * q_heads, 4 * kv_heads, 16
    shapes: dict[str, Shape] = {
        "q.weight": (q, width),
        "k.weight": (kv, width),
        "v.weight": (kv, width),
        "o.weight": (width, q),
    }
    if bias:
        shapes |= {"q.bias": (q,), "k.bias": (kv,), "v.bias": (kv,), "o.bias": (width,)}
    options = {"q_heads": q_heads, "kv_heads": kv_heads}
    return Case(name, "attention", shapes, (2, 7, width), (2, 7, width), options, **more)


def embedding(name: str, vocabulary: int, **more: Any) -> Case:
    """ids [3, 7] → [3, 7, 6]."""
    return Case(name, "embedding", {"weight": (vocabulary, 6)}, (3, 7), (3, 7, 6), {}, **more)


def loss(name: str, vocabulary: int, *, ignore_index: int = -100, **more: Any) -> Case:
    """Logits [11, vocabulary] → one number."""
    options = {"vocabulary": vocabulary, "ignore_index": ignore_index}
    return Case(name, "loss", {}, (11, vocabulary), (), options, **more)


def sequence(
    name: str, norm: str, activation: str, tokens: int = 12, *, bias: bool = True, **more: Any
) -> Case:
    """x [2, tokens, 8] → [2, tokens, 8]."""
    shapes = _mlp_shapes(8, 24, activation, bias) | {"norm.weight": (8,)}
    if norm == "layer":
        shapes["norm.bias"] = (8,)
    options = {"norm": norm, "activation": activation}
    return Case(name, "sequence", shapes, (2, tokens, 8), (2, tokens, 8), options, **more)


EXACT: dict[str, Any] = {"dtype": "float32", "integers": True}

LINEAR = (
    column("column", gather=False, **EXACT),
    column("column gathered", **EXACT),
    column("column uneven", 11, **EXACT),
    column("column uneven split", 13, gather=False, **EXACT),
    column("column transposed", layout="transposed", **EXACT),
    row("row", **EXACT),
    row("row whole input", split=False, **EXACT),
    row("row uneven", 11, **EXACT),
    row("row uneven whole input", 13, split=False, **EXACT),
    row("row transposed", layout="transposed", **EXACT),
    row("row strided", split=False, layout="strided", **EXACT),
)
MLPS = {
    "relu": (mlp("relu", "relu", **EXACT), mlp("relu uneven", "relu", 11, **EXACT)),
    "gelu": (mlp("gelu", "gelu"), mlp("gelu uneven", "gelu", 13), mlp("gelu f32", "gelu", dtype="float32")),
    "gated": (
        mlp("swiglu", "swiglu", bias=False),
        mlp("swiglu bias", "swiglu"),
        mlp("geglu uneven", "geglu", 11),
        mlp("swiglu f32", "swiglu", dtype="float32"),
    ),
}
EMBEDDINGS = (embedding("even", 12, **EXACT), embedding("uneven", 11, **EXACT))
LOSSES = {
    "plain": (loss("even", 12), loss("uneven", 11)),
    "ignored_id_in_vocabulary": (loss("ignore 3", 12, ignore_index=3),),
    "large_logits": (loss("large", 12, scale=500.0), loss("large uneven", 11, scale=500.0)),
}
SEQUENCES = {
    "layer_norm": (sequence("layer", "layer", "gelu"),),
    "rms_norm": (
        sequence("rms", "rms", "swiglu", bias=False),
        sequence("rms f32", "rms", "swiglu", bias=False, dtype="float32"),
    ),
    "uneven": (sequence("uneven", "layer", "relu", 11),),
}


def awkward(kind: str, p: int) -> tuple[Case, ...]:
    """Sizes that leave a rank with nothing, and head counts that would cut a head."""
    few = p - 1
    return {
        "linear": (
            column("tiny column", few, **EXACT),
            row("tiny row", few, **EXACT),
            mlp("tiny mlp", "relu", few, **EXACT),
            mlp("tiny gate", "swiglu", few),
        ),
        "heads": (
            attention("tiny heads", few, few),
            attention("uneven heads", p + 1, 1),
            attention("uneven groups", 5 * p, 5),
        ),
        "embedding": (embedding("tiny vocabulary", few, **EXACT),),
        "loss": (loss("tiny loss", few),),
        "sequence": (sequence("tiny sequence", "rms", "gelu", few),),
    }[kind]


def may_refuse(case: Case) -> bool:
    """Uneven and tiny sizes may be refused; all others must be answered."""
    return "uneven" in case.name or "tiny" in case.name
