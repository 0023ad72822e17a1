"""Training state on four (and a half) layouts, from first principles: one small class each, plain collectives.

No buckets, no overlap, no prefetching: what is sent and what is kept can be read off the classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from parproof.errors import InvalidPlan
from parproof.subjects.reference.zero_flat import FlatBuffer
from parproof.subjects.reference.zero_training import Training
from parproof.subjects.zero_protocol import STRATEGIES, StatePlan, StateTraining
from parproof.torch_names import all_gather_single, reduce_scatter_single


class Ddp(Training):
    """Everything on every rank; gradients are averaged by one all-reduce."""

    def reduce(self, buffer: FlatBuffer, gradient: Tensor) -> Tensor:
        """The mean over all ranks, whole."""
        dist.all_reduce(gradient)
        return gradient.div_(self.world)


class Zero1(Ddp):
    """Optimizer state is sharded: each rank updates its slice and broadcasts it."""

    def own_range(self, buffer: FlatBuffer) -> tuple[int, int]:
        """This rank's shard."""
        return buffer.shard_range(self.rank)

    def publish(self, buffer: FlatBuffer) -> None:
        """Every owner sends what it updated."""
        for owner in range(self.world):
            lo, hi = buffer.shard_range(owner)
            if lo < hi:
                dist.broadcast(buffer.full[lo:hi], src=owner)


class Zero2(Zero1):
    """Gradients are sharded too: reduce-scatter, update the shard, gather the parameters."""

    gradients_are_sharded = True

    def reduce(self, buffer: FlatBuffer, gradient: Tensor) -> Tensor:
        """The mean over all ranks, this rank's shard."""
        shard = gradient.new_empty(buffer.shard_numel)
        reduce_scatter_single(shard, gradient, group=self.shard_group)
        return shard.div_(self.world)

    def publish(self, buffer: FlatBuffer) -> None:
        """Gather every rank's updated shard."""
        all_gather_single(buffer.full, self.own_parameters(buffer).clone(), group=self.shard_group)


class Zero3(Zero2):
    """Parameters are sharded too: each unit is gathered before its forward and its backward, then given back."""

    per_unit = True

    def prepare(self) -> None:
        """Cut the parameters into shards and hook the units."""
        self._shards: dict[int, Tensor] = {}
        self._to_complete: dict[int, int] = {}
        self._to_reduce: list[FlatBuffer] = []
        for path, buffers in self.buffers.items():
            for buffer in buffers:
                lo, hi = self.own_range(buffer)
                self._shards[id(buffer)] = buffer.full[lo:hi].clone()
                buffer.release()
                for parameter in buffer.parameters.values():
                    if buffer.trainable:
                        parameter.register_post_accumulate_grad_hook(partial(self._complete, path, buffer))
            unit = self.module.get_submodule(path)
            unit.register_forward_pre_hook(lambda _unit, _args, _b=buffers: self.gather(_b))
            unit.register_forward_hook(lambda _unit, _args, output, _b=buffers: self._leave(_b, output))

    def own_parameters(self, buffer: FlatBuffer) -> Tensor:
        """The shard, in memory of its own."""
        return self._shards[id(buffer)]

    def publish(self, buffer: FlatBuffer) -> None:
        """Nothing to send: the next forward gathers."""

    def gather(self, buffers: Iterable[FlatBuffer]) -> None:
        """Make a unit's parameters whole."""
        for buffer in buffers:
            if not buffer.resident:
                all_gather_single(buffer.allocate(), self.own_parameters(buffer), group=self.shard_group)

    def _leave(self, buffers: Sequence[FlatBuffer], output: Tensor) -> Tensor:
        """After a unit's forward: give its memory back, and be there again before its backward."""
        for buffer in buffers:
            buffer.release()
        if output.requires_grad:
            output.register_hook(lambda gradient: self.gather(buffers))
        return output

    def backward(self, loss: Tensor) -> None:
        """As the base; gradients of a unit are reduced when they and those of all later units are complete."""
        order = [buffer for buffers in reversed(self.buffers.values()) for buffer in buffers]
        self._to_reduce = [buffer for buffer in order if buffer.trainable] if self.last else []
        self._to_complete = {id(buffer): len(buffer.parameters) for buffer in order}
        super().backward(loss)
        for buffer in order:
            buffer.release()

    def _complete(self, path: str, buffer: FlatBuffer, _parameter: nn.Parameter) -> None:
        self._to_complete[id(buffer)] -= 1
        # A frozen parameter may still be needed for the gradient of the unit's input.
        if all(self._to_complete[id(b)] == 0 and b.trainable for b in self.buffers[path]):
            for mine in self.buffers[path]:
                mine.release()
        while self._to_reduce and self._to_complete[id(self._to_reduce[0])] == 0:
            self.reduce_now(self._to_reduce.pop(0))

    def finish_reduction(self) -> None:
        """What was not complete: parameters that this rank did not use."""
        while self._to_reduce:
            self.reduce_now(self._to_reduce.pop(0))


class Hsdp(Zero3):
    """Zero3 inside each shard group; gradients are then averaged across the groups."""

    def reduce(self, buffer: FlatBuffer, gradient: Tensor) -> Tensor:
        """Reduce-scatter inside the shard group, all-reduce of the shard across groups."""
        shard = gradient.new_empty(buffer.shard_numel)
        reduce_scatter_single(shard, gradient, group=self.shard_group)
        dist.all_reduce(shard, group=self.replica_group)
        return shard.div_(self.world * self.replicas)


_CLASSES: dict[str, type[Training]] = {
    "ddp": Ddp,
    "zero1": Zero1,
    "zero2": Zero2,
    "zero3": Zero3,
    "hsdp": Hsdp,
}


class Zero:
    """The mechanism: checks a plan and builds its training."""

    def build(self, plan: StatePlan, module: nn.Module, units: Sequence[str]) -> StateTraining:
        """See StateSharding.build."""
        plan = self.checked(plan, module)
        if plan.mixed_bf16:
            module = module.to(torch.bfloat16)
        return self.layout(plan.strategy)(plan, module, units)

    def layout(self, strategy: str) -> type[Training]:
        """The class of a strategy."""
        return _CLASSES[strategy]

    def checked(self, plan: StatePlan, module: nn.Module) -> StatePlan:
        """The plan, if it can be carried out."""
        wrong = _fault_in(plan, module)
        if wrong is not None:
            raise InvalidPlan(wrong, where=str(dataclasses.replace(plan, options=())))
        return plan


def _fault_in(plan: StatePlan, module: nn.Module) -> str | None:
    world = dist.get_world_size()
    wrong = None
    if plan.strategy not in STRATEGIES:
        wrong = f"strategy {plan.strategy!r}; expected one of {', '.join(STRATEGIES)}"
    elif plan.optimizer not in ("sgd", "adam", "adamw"):
        wrong = f"optimizer {plan.optimizer!r}; expected sgd, adam or adamw"
    elif plan.accumulation < 1:
        wrong = f"accumulation {plan.accumulation}; expected at least 1 micro-batch"
    elif plan.lr < 0:
        wrong = f"learning rate {plan.lr}; expected at least 0"
    elif plan.replicas < 1 or world % plan.replicas:
        wrong = f"{plan.replicas} replicas; expected a positive divisor of the world size {world}"
    elif plan.replicas > 1 and plan.strategy != "hsdp":
        wrong = f"{plan.replicas} replicas with {plan.strategy}; expected hsdp, or 1 replica"
    elif not any(parameter.requires_grad for parameter in module.parameters()):
        wrong = "no trainable parameter in the module; expected at least one"
    return wrong
