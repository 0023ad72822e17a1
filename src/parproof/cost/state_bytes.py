"""Training state: bytes per rank, who owns what, and what a step sends. Φ is the number of parameters.

Two halves. The textbook half works with totals: 16Φ for mixed-precision Adam (2Φ parameters, 2Φ gradients,
12Φ optimizer state), divided by the number of ranks where a strategy shards. The exact half works with the
shapes of a model and says to the byte what one rank holds and sends, padding included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parproof.cost.traffic import Traffic
from parproof.errors import InvalidPlan

# Does the strategy shard (parameters, gradients, optimizer state)?
SHARDED = {
    "ddp": (False, False, False),
    "zero1": (False, False, True),
    "zero2": (False, True, True),
    "zero3": (True, True, True),
    "fsdp_full_shard": (True, True, True),
    "hsdp": (True, True, True),
}
NORM_BYTES = 8
MIXED_ADAM_BYTES = (2, 2, 12)


def resident_state(
    num_parameters: float,
    world_size: int,
    strategy: str,
    bytes_each: tuple[float, float, float] = MIXED_ADAM_BYTES,
) -> tuple[float, float, float]:
    """Textbook bytes per rank: (parameters, gradients, optimizer state)."""
    sharded = _sharded(strategy, world_size)
    if num_parameters < 0:
        raise InvalidPlan(f"{num_parameters} parameters", expected="at least 0", where="resident_state")
    parts = [
        num_parameters * each / (world_size if cut else 1)
        for each, cut in zip(bytes_each, sharded, strict=True)
    ]
    return parts[0], parts[1], parts[2]


def training_state_ledger(
    parameter_mb: float, gradient_mb: float, optimizer_mb: float, world_size: int, strategy: str
) -> dict[str, float | str]:
    """The same division for measured totals, as one row of a comparison."""
    parts = resident_state(1, world_size, strategy, (parameter_mb, gradient_mb, optimizer_mb))
    names = ("parameter_per_rank_mb", "gradient_per_rank_mb", "optimizer_per_rank_mb")
    return {"strategy": strategy, **dict(zip(names, parts, strict=True)), "resident_state_mb": sum(parts)}


def owner_layout(num_parameters: int, num_ranks: int, strategy: str) -> dict[str, dict[int, list[int]]]:
    """Textbook owner maps: rank → parameter ids, contiguous; a count that does not divide is refused."""
    sharded = _sharded(strategy, num_ranks)
    if num_parameters < 1 or num_parameters % num_ranks:
        raise InvalidPlan(
            f"{num_parameters} parameters over {num_ranks} ranks",
            expected="a positive multiple of the number of ranks",
            where="owner_layout",
            next_step="pad the flattened parameters to a multiple",
        )
    size = num_parameters // num_ranks
    maps = {}
    for kind, cut in zip(("parameters", "gradients", "optimizer_states"), sharded, strict=True):
        maps[kind] = {
            rank: list(range(rank * size, (rank + 1) * size) if cut else range(num_parameters))
            for rank in range(num_ranks)
        }
    return maps


def owner_update(
    parameters: Sequence[float], gradients: Sequence[float], owned: Mapping[int, Sequence[int]], lr: float
) -> list[float]:
    """One step of the teaching optimizer (state += gradient, parameter −= lr·state), each owner on its own ids."""
    if len(parameters) != len(gradients):
        raise InvalidPlan(f"{len(gradients)} gradients for {len(parameters)} parameters", expected="one each")
    updated = list(parameters)
    for ids in owned.values():
        for i in ids:
            updated[i] -= lr * gradients[i]
    return updated


def _sharded(strategy: str, world_size: int) -> tuple[bool, bool, bool]:
    if world_size < 1:
        raise InvalidPlan(f"world size {world_size}", expected="at least 1 rank")
    if strategy not in SHARDED:
        raise InvalidPlan(f"strategy {strategy!r}", expected=f"one of {', '.join(SHARDED)}")
    return SHARDED[strategy]


@dataclass(frozen=True)
class Model:
    """Shapes of the trainable parameters of each unit (the root's own ones first), and bytes per element."""

    units: tuple[tuple[tuple[int, ...], ...], ...]
    itemsize: int

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """All of them."""
        return tuple(shape for unit in self.units for shape in unit)

    @property
    def num_parameters(self) -> int:
        """Φ."""
        return sum(map(math.prod, self.shapes))


@dataclass(frozen=True)
class Layout:
    """A strategy as an implementation lays it out; see StateLayout of the subjects for the words.

    world_size is the number of ranks that share one copy: for hsdp, ranks / replicas.
    """

    strategy: str
    ownership: str
    parameters_at_rest: str
    world_size: int
    replicas: int = 1

    @property
    def gathers_units(self) -> bool:
        """Parameters are sharded between steps."""
        at_rest = self.strategy == "zero2" and self.parameters_at_rest == "sharded"
        return SHARDED[self.strategy][0] or at_rest

    def groups(self, model: Model) -> list[tuple[tuple[int, ...], ...]]:
        """What is sent as one message: a unit, or the whole model."""
        return [unit for unit in model.units if unit] if self.gathers_units else [model.shapes]

    def shard(self, shapes: Sequence[tuple[int, ...]]) -> int:
        """Elements of one rank's shard of a group, padding included."""
        if self.ownership == "rows":
            return sum(math.ceil(s[0] / self.world_size) * math.prod(s[1:]) for s in shapes)
        return math.ceil(sum(map(math.prod, shapes)) / self.world_size)

    def owned(self, shapes: Sequence[tuple[int, ...]], rank: int) -> int:
        """Elements of a group that belong to a rank, without padding."""
        if self.ownership == "rows":
            return sum(_slice(s[0], self.world_size, rank) * math.prod(s[1:]) for s in shapes)
        if self.ownership == "parameters":
            return largest_first(shapes, self.world_size)[rank]
        return _slice(sum(map(math.prod, shapes)), self.world_size, rank)


def _slice(total: int, parts: int, index: int) -> int:
    size = math.ceil(total / parts)
    return max(0, min(total - index * size, size))


def largest_first(shapes: Sequence[tuple[int, ...]], world_size: int) -> list[int]:
    """Elements per rank when whole parameters go, largest first, to the rank with least."""
    loads = [0] * world_size
    for size in sorted(map(math.prod, shapes), reverse=True):
        loads[loads.index(min(loads))] += size
    return loads


def held_bytes(model: Model, layout: Layout, rank: int, *, optimizer_bytes: int = 0) -> dict[str, int]:
    """Bytes a rank holds between backward and step (after a step, gradients are 0); step counters left out.

    optimizer_bytes   per parameter; by default two moments of the parameter's own size
    """
    groups, sharded = layout.groups(model), SHARDED[layout.strategy]
    whole, shards = model.num_parameters, sum(map(layout.shard, groups))
    padded = shards * layout.world_size if sharded[1] else whole
    owned = sum(layout.owned(shapes, rank) for shapes in groups) if sharded[2] else whole
    elements = {
        "parameters": shards if layout.gathers_units else padded,
        "gradients": shards if sharded[1] else whole,
    }
    held = {kind: count * model.itemsize for kind, count in elements.items()}
    return held | {"optimizer": owned * (optimizer_bytes or 2 * model.itemsize)}


def step_traffic(model: Model, layout: Layout, accumulation: int) -> list[Traffic]:
    """What one rank sends in a window, by phase: forward and backward of all micro-batches, clip, step."""
    n, size = layout.world_size, model.itemsize
    groups, sharded = layout.groups(model), SHARDED[layout.strategy]
    whole, shards = model.num_parameters * size, sum(map(layout.shard, groups)) * size
    if not sharded[1]:
        lines = [Traffic("all_reduce", 1, whole, whole, n, "backward")]
        if sharded[2]:
            messages = len(model.shapes) if layout.ownership == "parameters" else n
            lines.append(Traffic("broadcast", messages, whole, whole, n, "step"))
        return lines
    lines = [Traffic("reduce_scatter", len(groups), shards * n, shards, n, "backward")]
    if layout.gathers_units:
        times = accumulation * len(groups)
        gathered = (times, accumulation * shards, accumulation * shards * n, n)
        lines.append(Traffic("all_gather", *gathered, "forward"))
        if sharded[0]:
            lines.append(Traffic("all_gather", *gathered, "backward"))
    else:
        lines.append(Traffic("all_gather", 1, shards, shards * n, n, "step"))
    if layout.replicas > 1:
        lines.append(Traffic("all_reduce", len(groups), shards, shards, layout.replicas, "backward"))
    norms = NORM_BYTES * (len(model.shapes) if layout.ownership == "rows" else 1)
    lines.append(Traffic("all_reduce", 1, norms, norms, n, "clip"))
    return [line for line in lines if line.group_size > 1]
