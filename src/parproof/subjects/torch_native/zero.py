"""Training state as torch ships it: DistributedDataParallel, ZeroRedundancyOptimizer, FSDP2."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from parproof.subjects.torch_native import zero_checkpoint as checkpoints
from parproof.subjects.torch_native.zero_pieces import located
from parproof.subjects.zero_protocol import STRATEGIES, Pieces, StateLayout, StatePlan, StateTraining


class Zero:
    """The mechanism: picks the wrapper for a strategy."""

    def build(self, plan: StatePlan, module: nn.Module, units: Sequence[str]) -> StateTraining:
        """See StateSharding.build. Most checks are torch's own; accumulation and names are ours."""
        if plan.strategy not in STRATEGIES:
            raise ValueError(f"unknown strategy {plan.strategy!r}: expected one of {', '.join(STRATEGIES)}")
        if plan.accumulation < 1:
            raise ValueError(f"accumulation {plan.accumulation}: expected at least 1 micro-batch")
        if plan.replicas < 1 or dist.get_world_size() % plan.replicas:
            raise ValueError(f"{plan.replicas} replicas do not divide {dist.get_world_size()} ranks")
        if plan.strategy in ("ddp", "zero1"):
            return Replicated(plan, module)
        return Sharded(plan, module, units)


class Training:
    """Base: a wrapped module, a torch optimizer."""

    layout: StateLayout

    def __init__(self, plan: StatePlan, module: nn.Module) -> None:
        self.plan, self.module = plan, module
        self.named = dict(module.named_parameters())
        self.optimizer = self.make_optimizer()

    def parameter_groups(self) -> list[Any]:
        """One group, or two interleaved ones where some parameters are without decay."""
        trainable = [(name, p) for name, p in self.named.items() if p.requires_grad]
        if not self.plan.no_decay:
            return [p for _, p in trainable]
        without = {name for name, _ in trainable if name in self.plan.no_decay}
        return [
            {"params": [p for name, p in trainable if name not in without]},
            {"params": [p for name, p in trainable if name in without], "weight_decay": 0.0},
        ]

    def optimizer_kind(self) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        """The torch class and its arguments."""
        plan = self.plan
        common: dict[str, Any] = {"lr": plan.lr, "weight_decay": plan.weight_decay}
        if plan.optimizer == "sgd":
            return torch.optim.SGD, common
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}.get(plan.optimizer)
        if kind is None:
            raise ValueError(f"unknown optimizer {plan.optimizer!r}: expected sgd, adam or adamw")
        if "fused" in plan.options:
            common["fused"] = True
        return kind, common | {"betas": plan.betas, "eps": plan.eps}

    def make_optimizer(self) -> torch.optim.Optimizer:
        """An ordinary optimizer on what the rank holds."""
        kind, arguments = self.optimizer_kind()
        return kind(self.parameter_groups(), **arguments)

    def own_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer that holds this rank's state."""
        return self.optimizer

    def clip(self) -> float:
        """torch's own clipping; without a limit, its norm."""
        limit = float("inf") if self.plan.max_norm is None else self.plan.max_norm
        norm = torch.nn.utils.clip_grad_norm_(self.module.parameters(), limit)
        return float(norm)  # as one logs it: of a DTensor that is not yet summed this must be the sum

    def step(self) -> None:
        """Update and let the gradients go."""
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def pieces(self, kind: str) -> Pieces:
        """See StateTraining.pieces."""
        found: Pieces = {}
        state = self.own_optimizer().state
        for name, parameter in self.named.items():
            if kind == "parameters":
                tensor: Tensor | None = parameter
            elif kind == "gradients":
                tensor = parameter.grad
            else:
                tensor = state[parameter].get(kind) if parameter in state else None
            if tensor is not None:
                found[name] = located(tensor)
        return found

    def steps(self) -> dict[str, int]:
        """The step counters of torch's optimizers; SGD has none."""
        state = self.own_optimizer().state
        return {n: int(state[p]["step"]) for n, p in self.named.items() if p in state and "step" in state[p]}

    def held(self) -> dict[str, list[Tensor]]:
        """See StateTraining.held."""
        state = self.own_optimizer().state
        return {
            "parameters": list(self.named.values()),
            "gradients": [p.grad for p in self.named.values() if p.grad is not None],
            "optimizer": [t for s in state.values() for t in s.values() if isinstance(t, Tensor)],
        }

    def raw_gradients(self) -> Pieces:
        """No hook was asked for."""
        raise NotImplementedError("option raw_hook was not set")

    def save(self, directory: str) -> None:
        """torch.distributed.checkpoint."""
        checkpoints.save(directory, self.module, self.optimizer)

    def save_async(self, directory: str) -> checkpoints.Pending:
        """torch.distributed.checkpoint.async_save."""
        return checkpoints.save_async(directory, self.module, self.optimizer)

    def load(self, directory: str) -> None:
        """torch.distributed.checkpoint."""
        checkpoints.load(directory, self.module, self.optimizer)


class Replicated(Training):
    """DDP; zero1 adds ZeroRedundancyOptimizer."""

    def __init__(self, plan: StatePlan, module: nn.Module) -> None:
        zero1 = plan.strategy == "zero1"
        self.layout = StateLayout(ownership="parameters" if zero1 else "elements", keeps_buckets=True)
        self.ddp = DistributedDataParallel(
            module,
            static_graph="static_graph" in plan.options,
            find_unused_parameters=plan.find_unused,
            gradient_as_bucket_view=True,
            bucket_cap_mb=1e-4 if "small_buckets" in plan.options else None,
        )
        super().__init__(plan, module)
        self._open = ExitStack()
        self._raw: Pieces = {}
        if "raw_hook" in plan.options:
            self.ddp.register_comm_hook((self._raw, self.named), _spy)

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Ordinary for ddp."""
        if self.plan.strategy == "ddp":
            return super().make_optimizer()
        kind, arguments = self.optimizer_kind()
        return ZeroRedundancyOptimizer(self.parameter_groups(), optimizer_class=kind, **arguments)

    def own_optimizer(self) -> torch.optim.Optimizer:
        """ZeroRedundancyOptimizer keeps its shard in an optimizer of its own."""
        inner = getattr(self.optimizer, "optim", self.optimizer)
        assert isinstance(inner, torch.optim.Optimizer)
        return inner

    def forward(self, *batch: Tensor, last: bool) -> Tensor:
        """Under no_sync until backward, unless it is the last of its window."""
        if not last:
            self._open.enter_context(self.ddp.no_sync())
        loss = self.ddp(*batch)
        assert isinstance(loss, Tensor)
        return loss

    def backward(self, loss: Tensor) -> None:
        """The reducer does the rest."""
        with self._open:
            (loss / self.plan.accumulation).backward()

    def raw_gradients(self) -> Pieces:
        """What the hook was given."""
        return self._raw


# DDP compares annotations with its classes, so the hook must not have them as text.
def _spy(state, bucket):  # type: ignore[no-untyped-def]
    """Note the bucket, then do what DDP does without a hook."""
    raw, named = state
    names = {id(parameter): name for name, parameter in named.items()}
    for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
        raw[names[id(parameter)]] = [(0, gradient.detach().clone().flatten())]
    buffer = bucket.buffer().div_(dist.get_world_size())
    work = dist.all_reduce(buffer, async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])


class Sharded(Training):
    """FSDP2: zero2 keeps parameters whole until backward, zero3 and hsdp give them back after forward."""

    def __init__(self, plan: StatePlan, module: nn.Module, units: Sequence[str]) -> None:
        self.layout = StateLayout(ownership="rows", parameters_at_rest="sharded", masters="at_rest")
        options: dict[str, Any] = {"reshard_after_forward": plan.strategy != "zero2"}
        if plan.mixed_bf16:
            module = module.to(torch.float32)
            options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32)
        kind = next(iter(module.parameters())).device.type if list(module.parameters()) else "cpu"
        world = dist.get_world_size()
        if plan.strategy == "hsdp":
            shape = (plan.replicas, world // plan.replicas)
            options["mesh"] = init_device_mesh(kind, shape, mesh_dim_names=("replica", "shard"))
        else:
            options["mesh"] = init_device_mesh(kind, (world,), mesh_dim_names=("shard",))
        for path in units:
            fully_shard(module.get_submodule(path), **options)
        root = fully_shard(module, **options)
        assert isinstance(root, FSDPModule)
        self.root: FSDPModule = root
        self.sharded = [unit for unit in module.modules() if isinstance(unit, FSDPModule)]
        if "double_backward" in plan.options:
            root.set_reshard_after_backward(False, recurse=True)
        super().__init__(plan, module)

    def forward(self, *batch: Tensor, last: bool) -> Tensor:
        """Gradients are reduced after the last micro-batch only."""
        self.root.set_requires_gradient_sync(last)
        loss = self.module(*batch)
        assert isinstance(loss, Tensor)
        return loss

    def backward(self, loss: Tensor) -> None:
        """FSDP2's hooks do the rest; what was to stay for a second backward is given back after it."""
        (loss / self.plan.accumulation).backward()
        if "double_backward" in self.plan.options:
            for unit in self.sharded:
                unit.reshard()
