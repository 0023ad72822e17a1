"""Faults of PAR-ZERO-STATE in what is held, updated, saved and accepted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from parproof.subjects.mutants.zero_making import Fault
from parproof.subjects.reference.zero import Zero, Zero3
from parproof.subjects.reference.zero_adam import SliceOptimizer
from parproof.subjects.reference.zero_checkpoint import _copy, _join
from parproof.subjects.reference.zero_flat import FlatBuffer
from parproof.subjects.reference.zero_training import Training
from parproof.subjects.zero_protocol import STRATEGIES, Pieces, StatePlan, StateTraining


class OptimizerStateIsNotSharded(Fault, Training):
    def prepare(self) -> None:
        super().prepare()
        self.spare = [torch.zeros(2 * b.numel, dtype=b.dtype) for b in self._trainable()]

    def held(self) -> dict[str, list[Tensor]]:
        found = super().held()
        return found | {"optimizer": found["optimizer"] + self.spare}


class GradientsAreNotFreed(Fault, Training):
    def step(self) -> None:
        kept = [(b, b.gradient) for b in self._trainable()]
        super().step()
        for buffer, gradient in kept:
            buffer.gradient = gradient


class KeepsUnshardedGradients(Fault, Training):
    def reduce(self, buffer: FlatBuffer, gradient: Tensor) -> Tensor:
        self.__dict__.setdefault("leak", {})[id(buffer)] = gradient
        return super().reduce(buffer, gradient)


class MixedInNameOnly(Fault, Zero3):
    layout = dataclasses.replace(Zero3.layout, masters="at_rest")

    def __init__(self, plan: StatePlan, module: nn.Module, units: Sequence[str]) -> None:
        self.wide = plan.mixed_bf16
        whole = dataclasses.replace(plan, mixed_bf16=False)
        super().__init__(whole, module.float() if self.wide else module, units)

    def forward(self, *batch: Tensor, last: bool) -> Tensor:
        return super().forward(*(part.float() if self.wide else part for part in batch), last=last)


class KeepsParametersGathered(Fault, Zero3):
    def _leave(self, buffers: Sequence[FlatBuffer], output: Tensor) -> Tensor:
        return output


class LastShardIsNotSynced(Fault, Training):
    def publish(self, buffer: FlatBuffer) -> None:
        lo, hi = buffer.shard_range(self.world - 1)
        before = None if self.per_unit else buffer.full[lo:hi].clone()
        super().publish(buffer)
        if before is not None and self.rank != self.world - 1:
            buffer.full[lo:hi] = before


class StaleGather(Fault, Zero3):
    def gather(self, buffers: Iterable[FlatBuffer]) -> None:
        super().gather(buffers)
        for buffer in buffers:
            first = self.__dict__.setdefault("first", {}).setdefault(id(buffer), buffer.full.clone())
            buffer.full.copy_(first)


class ExtraGather(Fault, Zero3):
    def gather(self, buffers: Iterable[FlatBuffer]) -> None:
        super().gather(buffers)
        for buffer in buffers:
            buffer.release()
        super().gather(buffers)


class BroadcastFromTheWrongOwner(Fault, Training):
    def publish(self, buffer: FlatBuffer) -> None:
        if self.plan.strategy != "zero1":
            return super().publish(buffer)
        for owner in range(self.world):
            lo, hi = buffer.shard_range(owner)
            dist.broadcast(buffer.full[lo:hi], src={0: 1, 1: 0}.get(owner, owner))
        return None


class DropsTheRemainder(Fault, Training):
    def own_range(self, buffer: FlatBuffer) -> tuple[int, int]:
        if self.plan.strategy != "zero1":
            return super().own_range(buffer)
        size = buffer.numel // self.world
        return self.rank * size, (self.rank + 1) * size


class ShardsOverlap(Fault, Training):
    def pieces(self, kind: str) -> Pieces:
        found = super().pieces(kind)
        if kind != "exp_avg" or self.rank:
            return found
        return {
            n: [(s, torch.cat([p, p[-1:]])) if s == 0 else (s, p) for s, p in v] for n, v in found.items()
        }


class _BiasCorrectionOffByOne(SliceOptimizer):
    def correction(self, step: int) -> tuple[float, float]:
        return super().correction(step + 1)


class BiasCorrectionOffByOne(Fault, Training):
    optimizer_class = _BiasCorrectionOffByOne


class _CoupledDecay(SliceOptimizer):
    def update(self, name: str, parameter: Tensor, gradient: Tensor) -> None:
        if self.plan.optimizer == "adamw" and name not in self.plan.no_decay:
            gradient = gradient + self.plan.weight_decay * parameter
            parameter.div_(1 - self.plan.lr * self.plan.weight_decay)
        super().update(name, parameter, gradient)


class CoupledDecay(Fault, Training):
    optimizer_class = _CoupledDecay


class _ForgetsTheGroups(SliceOptimizer):
    def update(self, name: str, parameter: Tensor, gradient: Tensor) -> None:
        if name in self.plan.no_decay:
            parameter.mul_(1 - self.plan.lr * self.plan.weight_decay)
        super().update(name, parameter, gradient)


class ForgetsTheGroups(Fault, Training):
    optimizer_class = _ForgetsTheGroups


class FrozenParametersDecay(Fault, Training):
    @torch.no_grad()
    def step(self) -> None:
        for buffer, _, parameter, _ in self.own_slices():
            if not buffer.trainable:
                parameter.mul_(1 - self.plan.lr * self.plan.weight_decay)
        super().step()


class UnusedParametersStep(Fault, Training):
    def step(self) -> None:
        for buffer in self._trainable():
            buffer.used = set(buffer.parameters)
        super().step()


class UsedHereOnly(Fault, Training):
    def _agree_on_used(self) -> None:
        return


class CheckpointWithoutSecondMoment(Fault, Training):
    def load(self, directory: str) -> None:
        super().load(directory)
        for state in self.optimizer.state.values():
            state["exp_avg_sq"].zero_()


class ResumeResetsTheStep(Fault, Training):
    def load(self, directory: str) -> None:
        super().load(directory)
        for name in self.optimizer.num_steps:
            self.optimizer.num_steps[name] = 0


class ReshardSwapsShards(Fault, Training):
    def load(self, directory: str) -> None:
        super().load(directory)
        for state in self.optimizer.state.values():
            state["exp_avg"].copy_(state["exp_avg"].roll(1))


class SavesLate(Fault, Training):
    def save_async(self, directory: str) -> Any:
        training = self

        class Pending:
            def result(self) -> None:
                training.save(directory)

        return Pending()


class LeavesMomentsBehind(Fault, Training):
    def load(self, directory: str) -> None:
        super().load(directory)
        if len(list(Path(directory).glob("rank*.pt"))) != dist.get_world_size():
            for state in self.optimizer.state.values():
                for moment in state.values():
                    moment.zero_()


class ResumesInFloat32(Fault, Training):
    resumed = False

    def load(self, directory: str) -> None:
        super().load(directory)
        self.resumed = True

    def step(self) -> None:
        super().step()
        for state in self.optimizer.state.values() if self.resumed else ():
            for kind, moment in state.items():
                state[kind] = moment.float()


class TrainsWithStaleShards(Fault, Zero3):
    def load(self, directory: str) -> None:
        built_with = {key: shard.clone() for key, shard in self._shards.items()}
        super().load(directory)
        if len(list(Path(directory).glob("rank*.pt"))) != dist.get_world_size():
            self.stale = built_with

    def gather(self, buffers: Iterable[FlatBuffer]) -> None:
        current, self._shards = self._shards, self.__dict__.get("stale", self._shards)
        super().gather(buffers)
        self._shards = current


class CastsOnLoad(Fault, Training):
    def load(self, directory: str) -> None:
        _copy(_join(directory), self)


class LoadsWhatFits(Fault, Training):
    def load(self, directory: str) -> None:
        try:
            super().load(directory)
        except Exception:
            dist.barrier()


class AcceptsAnything(Zero):
    @classmethod
    def mechanism(cls) -> AcceptsAnything:
        return cls()

    def checked(self, plan: StatePlan, module: nn.Module) -> StatePlan:
        known = plan.strategy if plan.strategy in STRATEGIES else "ddp"
        return dataclasses.replace(
            plan,
            strategy=known,
            optimizer=plan.optimizer if plan.optimizer in ("sgd", "adam", "adamw") else "adamw",
            accumulation=max(1, plan.accumulation),
            lr=abs(plan.lr),
            replicas=1,
        )

    def build(self, plan: StatePlan, module: nn.Module, units: Sequence[str]) -> StateTraining:
        if not list(module.parameters()):
            module.register_parameter("stand_in", nn.Parameter(torch.zeros(8)))
        return super().build(plan, module, units)
