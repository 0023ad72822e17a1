"""Ordinary modules, written as parallelize_module expects them: they know nothing of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

M = TypeVar("M", bound=nn.Module)


def loaded(module: M, params: Mapping[str, Tensor]) -> M:
    """The module with these parameters."""
    module.load_state_dict(dict(params))
    return module.to(next(iter(params.values())).device)


def linear(params: Mapping[str, Tensor], prefix: str = "") -> nn.Linear:
    """A linear layer of the size of its parameters; loaded if they have no prefix."""
    weight = params[f"{prefix}weight"]
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=f"{prefix}bias" in params, dtype=weight.dtype)
    return made if prefix else loaded(made, params)


def unfused(params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """gate_up.* as gate.* and up.*."""
    own: dict[str, Tensor] = {}
    for name, value in params.items():
        if name.startswith("gate_up."):
            kind = name.removeprefix("gate_up.")
            own[f"gate.{kind}"], own[f"up.{kind}"] = value.chunk(2)
        else:
            own[name] = value
    return own


class Mlp(nn.Module):
    """down(activation(up(x))), or down(activation(gate(x)) * up(x))."""

    def __init__(self, params: Mapping[str, Tensor], activation: str) -> None:
        super().__init__()
        self.up, self.down = linear(params, "up."), linear(params, "down.")
        self.gate = linear(params, "gate.") if "gate.weight" in params else None
        self.activation: Any = {
            "gelu": functional.gelu,
            "relu": functional.relu,
            "swiglu": functional.silu,
            "geglu": functional.gelu,
        }[activation]

    def forward(self, x: Tensor) -> Tensor:
        """Any shape, last dim is the width."""
        if self.gate is None:
            return self.down(self.activation(self.up(x)))  # type: ignore[no-any-return]
        return self.down(self.activation(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Causal attention with as many heads as this rank has."""

    def __init__(self, params: Mapping[str, Tensor], q_heads: int, kv_heads: int, all_heads: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (linear(params, f"{name}.") for name in "qkvo")
        self.q_heads, self.kv_heads = q_heads, kv_heads
        self.head_width = params["q.weight"].shape[0] // all_heads

    def forward(self, x: Tensor) -> Tensor:
        """[batch, tokens, width]."""
        q, k, v = (
            projection(x).unflatten(-1, (heads, self.head_width)).transpose(1, 2)
            for projection, heads in (
                (self.q, self.q_heads),
                (self.k, self.kv_heads),
                (self.v, self.kv_heads),
            )
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Block(nn.Module):
    """mlp(norm(x))."""

    def __init__(self, params: Mapping[str, Tensor], norm: str, activation: str) -> None:
        super().__init__()
        weight = params["norm.weight"]
        kind: Any = nn.RMSNorm if norm == "rms" else nn.LayerNorm
        self.norm = kind(weight.shape[0], eps=1e-5, dtype=weight.dtype)
        self.mlp = Mlp(params, activation)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, tokens, width]."""
        return self.mlp(self.norm(x))  # type: ignore[no-any-return]


def statistics() -> dict[str, Any]:
    """Statistic → torch function."""
    return {"mean": torch.mean, "var": torch.var, "std": torch.std, "norm": torch.linalg.vector_norm}
