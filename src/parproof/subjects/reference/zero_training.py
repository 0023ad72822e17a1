"""What all layouts of training state have in common: accumulation, clipping, the optimizer step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import torch
import torch.distributed as dist
from torch import Tensor, nn

from parproof.errors import InvalidPlan, UsageError
from parproof.subjects.reference.zero_adam import SliceOptimizer
from parproof.subjects.reference.zero_checkpoint import read, snapshot, write, write_async
from parproof.subjects.reference.zero_flat import FlatBuffer, Segment
from parproof.subjects.zero_protocol import Pieces, StateLayout, StatePlan


class Training:
    """Base of the layouts. A layout says how gradients are reduced, which range a rank owns, what it publishes.

    buffers   path of a unit → its flat buffers, one for each dtype and for trainable and frozen parameters;
              one pseudo-unit "" when nothing is gathered by unit
    """

    layout = StateLayout(ownership="elements")
    gradients_are_sharded = False
    per_unit = False
    optimizer_class = SliceOptimizer

    def __init__(self, plan: StatePlan, module: nn.Module, units: Sequence[str]) -> None:
        self.plan, self.module = plan, module
        self.replicas = plan.replicas
        self.shard_group, self.replica_group = _groups(plan.replicas)
        self.rank = dist.get_rank(self.shard_group)
        self.world = dist.get_world_size(self.shard_group)
        self.buffers = self._flatten(units if self.per_unit else ())
        self.last = True
        self.prepare()
        self.optimizer = self.optimizer_class(plan)
        for buffer, segment, parameter, _ in self.own_slices():
            if buffer.trainable:
                self.optimizer.adopt(segment.name, parameter)

    def _flatten(self, units: Sequence[str]) -> dict[str, list[FlatBuffer]]:
        """The root first; each parameter belongs to the innermost unit around it, a tied one to its first use."""
        if units:
            _refuse_sharing(self.module, units)
        by_key: dict[tuple[str, torch.dtype, bool], list[tuple[str, nn.Parameter]]] = {}
        for name, parameter in self.module.named_parameters():
            unit = max((u for u in units if name.startswith(u + ".")), key=len, default="")
            by_key.setdefault((unit, parameter.dtype, parameter.requires_grad), []).append((name, parameter))
        buffers: dict[str, list[FlatBuffer]] = {path: [] for path in ("", *units)}
        for (unit, _, _), named in by_key.items():
            buffers[unit].append(FlatBuffer(named, self.world, padded=self.gradients_are_sharded))
        return buffers

    # -- what a layout decides ------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Called once, when the buffers exist."""

    def reduce(self, buffer: FlatBuffer, gradient: Tensor) -> Tensor:
        """The mean of the ranks' gradients: whole, or this rank's shard."""
        raise NotImplementedError

    def own_range(self, buffer: FlatBuffer) -> tuple[int, int]:
        """The range whose optimizer state this rank holds."""
        return 0, buffer.numel

    def publish(self, buffer: FlatBuffer) -> None:
        """After an update: make the parameters current where they are replicated."""

    def own_parameters(self, buffer: FlatBuffer) -> Tensor:
        """The parameters of the owned range."""
        lo, hi = self.own_range(buffer)
        return buffer.full[lo:hi]

    # -- one window -----------------------------------------------------------------------------------------

    def forward(self, *batch: Tensor, last: bool) -> Tensor:
        """The module's loss."""
        self.last = last
        loss = self.module(*batch)
        assert isinstance(loss, Tensor)
        return loss

    def backward(self, loss: Tensor) -> None:
        """Accumulate in the parameters; reduce after the last micro-batch."""
        (loss / self.plan.accumulation).backward()
        if self.last:
            self.finish_reduction()
            self._agree_on_used()

    def finish_reduction(self) -> None:
        """Reduce what has not been reduced yet: everything, unless a layout does it earlier."""
        for buffer in self._trainable():
            self.reduce_now(buffer)

    def reduce_now(self, buffer: FlatBuffer) -> None:
        """Replace the rank's own gradients by the mean."""
        buffer.gradient = self.reduce(buffer, buffer.take_gradients())

    def _agree_on_used(self) -> None:
        """A parameter counts as used when any rank used it; without find_unused every rank must use all."""
        buffers = self._trainable()
        names = [(buffer, name) for buffer in buffers for name in buffer.parameters]
        mine = [name in buffer.used for buffer, name in names]
        if self.plan.find_unused:
            flags = torch.tensor(mine, dtype=torch.int32, device=buffers[0].full.device)
            dist.all_reduce(flags, op=dist.ReduceOp.MAX)
            mine = [bool(flag) for flag in flags]
        elif not all(mine):
            idle = [name for (_, name), used in zip(names, mine, strict=True) if not used]
            raise UsageError(
                f"no gradient for {', '.join(idle)}",
                expected="every trainable parameter used on every rank",
                where=f"rank {dist.get_rank()}",
                next_step="set find_unused=True in the plan, or freeze them",
            )
        for buffer in buffers:
            buffer.used = {name for (b, name), used in zip(names, mine, strict=True) if used and b is buffer}

    def clip(self) -> float:
        """Global norm: own parts squared and summed, then summed over the shards where gradients are sharded."""
        gradients = [buffer.gradient for buffer in self._trainable() if buffer.gradient is not None]
        square = torch.zeros((), dtype=torch.float64, device=gradients[0].device)
        for gradient in gradients:
            square += gradient.double().square().sum()
        if self.gradients_are_sharded:
            dist.all_reduce(square, group=self.shard_group)
        norm = math.sqrt(float(square))
        if self.plan.max_norm is not None:
            factor = min(1.0, self.plan.max_norm / (norm + 1e-6))
            for gradient in gradients:
                gradient.mul_(factor)
        return norm

    @torch.no_grad()
    def step(self) -> None:
        """Update the owned slices, publish, let the gradients go."""
        for buffer, segment, parameter, gradient in self.own_slices():
            if gradient is not None and segment.name in buffer.used:
                self.optimizer.update(segment.name, parameter, gradient)
        for buffer in self._trainable():
            self.publish(buffer)
            buffer.gradient = None
            buffer.used = set()

    def _trainable(self) -> list[FlatBuffer]:
        return [buffer for buffers in self.buffers.values() for buffer in buffers if buffer.trainable]

    def own_slices(self) -> Iterator[tuple[FlatBuffer, Segment, Tensor, Tensor | None]]:
        """The owned parts of all parameters, frozen ones too, with the gradient where there is one."""
        for buffer in (b for buffers in self.buffers.values() for b in buffers):
            lo, hi = self.own_range(buffer)
            own, gradient = self.own_parameters(buffer), buffer.gradient
            if gradient is not None and not self.gradients_are_sharded:
                gradient = gradient[lo:hi]
            for part in buffer.segments(lo, hi):
                inside = slice(part.lo - lo, part.hi - lo)
                yield buffer, part, own[inside], None if gradient is None else gradient[inside]

    # -- looking at it --------------------------------------------------------------------------------------

    def pieces(self, kind: str) -> Pieces:
        """See StateTraining.pieces."""
        if kind in ("exp_avg", "exp_avg_sq"):
            starts = {part.name: part.start for _, part, _, _ in self.own_slices()}
            return {
                name: [(starts[name], state[kind])]
                for name, state in self.optimizer.state.items()
                if kind in state and self.optimizer.num_steps[name]
            }
        found: Pieces = {}
        for buffer in (b for buffers in self.buffers.values() for b in buffers):
            flat, lo = self._resident(buffer, kind)
            if flat is None:
                continue
            for part in buffer.segments(lo, lo + flat.numel()):
                if kind == "parameters" or part.name in buffer.used:
                    found[part.name] = [(part.start, flat[part.lo - lo : part.hi - lo])]
        return found

    def _resident(self, buffer: FlatBuffer, kind: str) -> tuple[Tensor | None, int]:
        """What is held of a buffer's parameters or gradient, and where in the buffer it begins."""
        lo = self.own_range(buffer)[0]
        if kind == "gradients":
            return buffer.gradient, lo if self.gradients_are_sharded else 0
        return (self.own_parameters(buffer), lo) if self.per_unit else (buffer.full, 0)

    def steps(self) -> dict[str, int]:
        """Updates so far."""
        return {name: count for name, count in self.optimizer.num_steps.items() if count}

    def held(self) -> dict[str, list[Tensor]]:
        """See StateTraining.held."""
        buffers = [b for buffers in self.buffers.values() for b in buffers]
        own = [self.own_parameters(b) for b in buffers] if self.per_unit else []
        return {
            "parameters": [b.full for b in buffers] + own,
            "gradients": [b.gradient for b in buffers if b.gradient is not None]
            + [p.grad for p in self.module.parameters() if p.grad is not None],
            "optimizer": [t for state in self.optimizer.state.values() for t in state.values()],
        }

    def raw_gradients(self) -> Pieces:
        """There are no hooks here."""
        raise NotImplementedError("no communication hooks")

    # -- checkpoints ----------------------------------------------------------------------------------------

    def save(self, directory: str) -> None:
        """Each rank writes what it owns."""
        write(directory, snapshot(self))
        dist.barrier()

    def save_async(self, directory: str) -> Future[None]:
        """The copy is made before this returns; only the writing goes on."""
        return write_async(directory, snapshot(self))

    def load(self, directory: str) -> None:
        """See StateTraining.load."""
        read(directory, self)


def _refuse_sharing(module: nn.Module, units: Sequence[str]) -> None:
    """A parameter that two units use would be given back while one still needs it."""
    seen: dict[int, tuple[str, str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        unit = max((u for u in units if name.startswith(u + ".")), key=len, default="")
        first, home = seen.setdefault(id(parameter), (name, unit))
        if home != unit:
            raise InvalidPlan(
                f"{first} and {name} are one parameter in two units",
                expected="tied parameters inside one unit",
                where="building a sharded training",
                next_step="leave both modules to the root, or make one unit of them",
            )


def _groups(replicas: int) -> tuple[dist.ProcessGroup, dist.ProcessGroup | None]:
    """(this rank's shard group, the ranks that hold the same shard as this one)."""
    assert dist.group.WORLD is not None
    if replicas == 1:
        return dist.group.WORLD, None
    size = dist.get_world_size() // replicas
    shards = [list(range(r * size, (r + 1) * size)) for r in range(replicas)]
    mine, _ = dist.new_subgroups_by_enumeration(shards)
    across, _ = dist.new_subgroups_by_enumeration([list(column) for column in zip(*shards, strict=True)])
    return mine, across
