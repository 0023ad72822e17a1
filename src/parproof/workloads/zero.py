"""Small models for training-state sharding: odd sizes everywhere, one kind for each question.

Parameter counts are chosen so that neither rows nor elements divide by 2, 3 or 4. All models map a batch to
its mean loss, so that the mean over ranks and micro-batches of equal size is the loss of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

UNITS = ("blocks.0", "blocks.1")
EXACT_KINDS = ("integers", "linear")
IN, WIDTH, HIDDEN, OUT, VOCABULARY = 5, 6, 7, 3, 11


class Block(nn.Module):
    """x + gate · down(tanh(up(x))); the gate is a parameter of one element, or absent."""

    def __init__(self, *, gate: bool = False, spare: bool = False, recompute: bool = False) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH)
        self.gate = nn.Parameter(torch.empty(1)) if gate else None
        self.spare = nn.Parameter(torch.empty(3, 2)) if spare else None
        self.recompute = recompute

    def forward(self, x: Tensor) -> Tensor:
        """[n, WIDTH] to [n, WIDTH], in the dtype of the block's own weights."""
        inner = self._inner
        y = checkpoint(inner, x, use_reentrant=False) if self.recompute else inner(x)
        assert isinstance(y, Tensor)
        return x + y.to(x.dtype)

    def _inner(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(torch.tanh(self.up(x.to(self.up.weight.dtype))))
        return y if self.gate is None else y * self.gate


class Regressor(nn.Module):
    """Linear, two blocks, linear; mean squared error. `penalty` adds the mean squared input gradient."""

    def __init__(self, *, penalty: bool = False, **block: bool) -> None:
        super().__init__()
        self.inlet = nn.Linear(IN, WIDTH)
        self.blocks = nn.ModuleList([Block(**block), Block(**block)])
        self.outlet = nn.Linear(WIDTH, OUT)
        self.penalty = penalty

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Mean loss of the samples."""
        x = x.requires_grad_(self.penalty)
        y = self.inlet(x)
        for block in self.blocks:
            y = block(y)
        y = self.outlet(y)
        loss = (y - target).square().mean()
        if self.penalty:
            (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            loss = loss + slope.square().mean()
        assert isinstance(loss, Tensor)
        return loss


class Branches(nn.Module):
    """Each sample goes through one of two layers; which one is in the batch, so ranks may differ in use."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet = nn.Linear(IN, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.branch = nn.ModuleList([nn.Linear(WIDTH, OUT), nn.Linear(WIDTH, OUT)])

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """The sign of the first target decides; samples come sorted."""
        y = self.blocks[1](self.blocks[0](self.inlet(x)))
        left = target[:, 0] < 0
        parts = [self.branch[i](y[which]) for i, which in enumerate((left, ~left)) if bool(which.any())]
        return (torch.cat(parts) - target).square().mean()


class TiedTokens(nn.Module):
    """Embedding and output head share one matrix; cross-entropy."""

    def __init__(self, **block: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList([Block(**block), Block(**block)])
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, token: Tensor, target: Tensor) -> Tensor:
        """Mean loss of the samples."""
        y = self.embed(token)
        for block in self.blocks:
            y = block(y)
        loss: Tensor = nn.functional.cross_entropy(self.head(y), target)
        return loss


class Products(nn.Module):
    """Integers only: the sum of blocks, each down(relu(up(x))), weighted by integers; no rounding in float64."""

    def __init__(self, *, linear: bool = False) -> None:
        super().__init__()
        self.linear = linear
        self.inlet = nn.Linear(IN, HIDDEN if linear else OUT, bias=False)
        self.blocks = nn.ModuleList([self._block(), self._block()])

    def _block(self) -> nn.Sequential:
        if self.linear:
            return nn.Sequential(nn.Linear(IN, HIDDEN))
        return nn.Sequential(nn.Linear(IN, HIDDEN, bias=False), nn.ReLU(), nn.Linear(HIDDEN, OUT, bias=False))

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """Mean over the samples; with `linear` the gradient does not depend on the parameters."""
        y = self.inlet(x)
        for block in self.blocks:
            y = y + block(x)
        loss: Tensor = (y * weight).sum(dim=1).mean()
        return loss


class Metered(Regressor):
    """A regressor beside a frozen parameter of its own, with fractions or, where it counts, whole numbers."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.meter = nn.Parameter(torch.empty(5, dtype=dtype), requires_grad=False)


def build(kind: str, dtype: torch.dtype, device: torch.device | str = "cpu") -> nn.Module:
    """A model of a kind with the same parameters on every rank and in every dtype (float32 values)."""
    module = _module(kind)
    generator = torch.Generator().manual_seed(17)
    with torch.no_grad():
        for parameter in module.parameters():
            if kind in EXACT_KINDS:
                parameter.copy_(torch.randint(-2, 3, parameter.shape, generator=generator))
            else:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    module.to(device=device, dtype=dtype)
    if kind == "odd":
        module.get_parameter("blocks.0.up.weight").requires_grad_(False)
        module.get_parameter("blocks.1.down.bias").requires_grad_(False)
    if kind == "mixed_dtype":
        module.get_submodule("blocks.1").to(torch.float32)
    return module


def _module(kind: str) -> nn.Module:
    makers: dict[str, Callable[[], nn.Module]] = {
        "smooth": Regressor,
        "penalty": lambda: Regressor(penalty=True),
        "recomputed": lambda: Regressor(recompute=True),
        "gated": lambda: Regressor(gate=True),
        "odd": lambda: TiedTokens(gate=True, spare=True),
        "unused": lambda: Regressor(spare=True),
        "mixed_dtype": Regressor,
        "tied": TiedTokens,
        "divergent": Branches,
        "metered": Metered,
        "counted": lambda: Metered(torch.int64),
        "integers": Products,
        "linear": lambda: Products(linear=True),
    }
    return makers[kind]()


def global_batch(kind: str, window: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """All samples of one optimizer step: 24, or 16 where means have to be exact. Same values in every dtype.

    linear   24, with weights that are multiples of three: means over 3 ranks, and over 2 and 4, are exact too
    """
    generator = torch.Generator().manual_seed(1000 + window)
    if kind in ("tied", "odd"):
        tokens = torch.randint(0, VOCABULARY, (2, 24), generator=generator)
        return tokens[0], tokens[1]
    if kind in EXACT_KINDS:
        size = (24, IN + HIDDEN) if kind == "linear" else (16, IN + OUT)
        numbers = torch.randint(-3, 4, size, generator=generator).to(dtype)
    else:
        numbers = torch.randn(24, IN + OUT, generator=generator).to(dtype)
    x, target = numbers[:, :IN].contiguous(), numbers[:, IN:].contiguous()
    if kind == "linear":
        target = 3 * target
    if kind == "divergent":
        target[:, 0] = target[:, 0].abs() * torch.tensor([-1.0] * 12 + [1.0] * 12, dtype=dtype)
    return x, target


def share(batch: tuple[Tensor, ...], index: int, parts: int) -> tuple[Tensor, ...]:
    """Part `index` of a batch cut into equal parts: rank r's micro-batch m is part r·accumulation + m."""
    size = batch[0].shape[0]
    if size % parts:
        raise ValueError(f"{size} samples cannot be cut into {parts} equal parts")
    step = size // parts
    return tuple(tensor[index * step : (index + 1) * step].clone() for tensor in batch)


def trainable_shapes(kind: str) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Shapes of the trainable parameters by unit, the root's own ones first."""
    module = build(kind, torch.float32)
    by_unit: dict[str, list[tuple[int, ...]]] = {path: [] for path in ("", *UNITS)}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            unit = next((u for u in UNITS if name.startswith(u + ".")), "")
            by_unit[unit].append(tuple(parameter.shape))
    return tuple(tuple(shapes) for shapes in by_unit.values())


def sizes(kind: str, *, trainable_only: bool = False) -> dict[str, int]:
    """Elements of each parameter."""
    named = build(kind, torch.float32).named_parameters()
    return {name: p.numel() for name, p in named if p.requires_grad or not trainable_only}
