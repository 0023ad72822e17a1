"""Faults of PAR-ZERO-STATE in what is reduced, when, and how it is clipped."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch import Tensor

from parproof.subjects.mutants.zero_making import Fault, scale
from parproof.subjects.reference.zero_flat import FlatBuffer
from parproof.subjects.reference.zero_training import Training


class SumNotMean(Fault, Training):
    def reduce(self, buffer: FlatBuffer, gradient: Tensor) -> Tensor:
        return super().reduce(buffer, gradient) * dist.get_world_size()


class MeanTwice(Fault, Training):
    def reduce(self, buffer: FlatBuffer, gradient: Tensor) -> Tensor:
        return super().reduce(buffer, gradient) / dist.get_world_size()


class ReducesInBf16(Fault, Training):
    def reduce(self, buffer: FlatBuffer, gradient: Tensor) -> Tensor:
        return super().reduce(buffer, gradient.bfloat16().to(gradient.dtype))


class GradientsInFloat32(Fault, Training):
    def reduce(self, buffer: FlatBuffer, gradient: Tensor) -> Tensor:
        return super().reduce(buffer, gradient).float()


class OneParameterIsNotReduced(Fault, Training):
    def reduce(self, buffer: FlatBuffer, gradient: Tensor) -> Tensor:
        name = min(buffer.parameters, key=lambda n: buffer.parameters[n].numel())
        lo = buffer.offsets[name]
        hi = lo + buffer.parameters[name].numel()
        own = gradient[lo:hi].clone()
        reduced = super().reduce(buffer, gradient)
        base = self.own_range(buffer)[0] if self.gradients_are_sharded else 0
        for part in buffer.segments(base, base + reduced.numel()):
            if part.name == name:
                reduced[part.lo - base : part.hi - base] = own[part.start : part.start + part.hi - part.lo]
        return reduced


class ReplicasAreNotReduced(Fault, Training):
    def reduce(self, buffer: FlatBuffer, gradient: Tensor) -> Tensor:
        if self.replicas == 1:
            return super().reduce(buffer, gradient)
        shard = gradient.new_empty(buffer.shard_numel)
        dist.reduce_scatter(shard, list(gradient.chunk(self.world)), group=self.shard_group)
        return shard / self.world


class AllReduceForReduceScatter(Fault, Training):
    def reduce(self, buffer: FlatBuffer, gradient: Tensor) -> Tensor:
        if not self.gradients_are_sharded or self.replicas > 1:
            return super().reduce(buffer, gradient)
        dist.all_reduce(gradient)
        lo, hi = self.own_range(buffer)
        return gradient[lo:hi].clone() / self.world


class LastMicroBatchOnly(Fault, Training):
    def backward(self, loss: Tensor) -> None:
        self.module.zero_grad()
        super().backward(loss)


class DividesByAccumulationTwice(Fault, Training):
    def backward(self, loss: Tensor) -> None:
        super().backward(loss / self.plan.accumulation)


class IgnoresAccumulation(Fault, Training):
    def backward(self, loss: Tensor) -> None:
        super().backward(loss * self.plan.accumulation)


class NoSyncStillSends(Fault, Training):
    def backward(self, loss: Tensor) -> None:
        super().backward(loss)
        if not self.last:
            for buffer in self._trainable():
                dist.all_reduce(torch.zeros(buffer.numel, dtype=buffer.dtype))


class StepsPerMicroBatch(Fault, Training):
    def step(self) -> None:
        for name in self.optimizer.num_steps:
            self.optimizer.num_steps[name] += self.plan.accumulation - 1
        super().step()


class LocalNorm(Fault, Training):
    def clip(self) -> float:
        gradients = [b.gradient for b in self._trainable() if b.gradient is not None]
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in gradients))
        return scale(gradients, norm, self.plan.max_norm)


class NormOverAllCopies(Fault, Training):
    def clip(self) -> float:
        gradients = [b.gradient for b in self._trainable() if b.gradient is not None]
        square = torch.tensor(sum(float(g.double().square().sum()) for g in gradients), dtype=torch.float64)
        dist.all_reduce(square)
        return scale(gradients, math.sqrt(float(square)), self.plan.max_norm)


class ClipsBeforeReducing(Fault, Training):
    def reduce(self, buffer: FlatBuffer, gradient: Tensor) -> Tensor:
        if self.plan.max_norm is not None:
            gradient = gradient * min(1.0, self.plan.max_norm / float(gradient.norm() + 1e-6))
        return super().reduce(buffer, gradient)


class PaddingLeaksIntoTheNorm(Fault, Training):
    def clip(self) -> float:
        for buffer in self._trainable():
            hi = self.own_range(buffer)[1]
            if self.gradients_are_sharded and buffer.gradient is not None and hi > buffer.numel:
                buffer.gradient[buffer.numel - hi :] = 1.0
        return super().clip()


class CountsTiedWeightsTwice(Fault, Training):
    def clip(self) -> float:
        names = [name for name, _ in self.module.named_parameters()]
        twice = [n for n, _ in self.module.named_parameters(remove_duplicate=False) if n not in names]
        norm = super().clip()
        return norm * (1 + 0.25 * len(twice))
