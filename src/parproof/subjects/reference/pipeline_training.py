"""Runs the events of one rank in their order, then makes one mean of the gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from parproof.subjects.pipeline_protocol import Observer, PipelinePlan
from parproof.subjects.reference.pipeline_order import Work
from parproof.subjects.reference.pipeline_stage import Stage
from parproof.subjects.reference.pipeline_wire import Message, Wire


class Training:
    """See PipelineTraining of the protocol."""

    def __init__(
        self,
        plan: PipelinePlan,
        stages: Mapping[int, Stage],
        wire: Wire,
        observe: Observer,
        tied: tuple[tuple[int, str], ...],
        data_group: dist.ProcessGroup | None,
    ) -> None:
        self.plan, self.stages, self.wire = plan, stages, wire
        self.observe, self.tied, self.data_group = observe, tied, data_group
        self.order = wire.orders[wire.rank]
        self.last = len(wire.placement) - 1
        self._local: dict[Message, list[Tensor]] = {}

    def step(self, inputs: Tensor | None, targets: Tensor | None) -> list[Tensor]:
        """See the protocol."""
        micro_inputs = self.cut(inputs) if inputs is not None else ()
        micro_targets = self.cut(targets) if targets is not None else ()
        losses: dict[int, Tensor] = {}
        before = self._take_gradients()
        self.wire.begin()
        for work in self.order:
            if work.kind == "F":
                given = [micro_inputs[work.micro]] if work.stage == 0 else self._arrived("F", work)
                target = micro_targets[work.micro] if work.stage == self.last else None
                with torch.enable_grad():
                    out = self._observed(work, functools.partial(self._forward, work, given, target))
                if work.stage == self.last:
                    losses[work.micro] = out[0].detach()
            else:
                self._backward(work)
        self.wire.finish()
        self.mean()
        self._put_back(before)
        return [losses[i] for i in sorted(losses)]

    def cut(self, batch: Tensor) -> Sequence[Tensor]:
        """Micro-batches of a batch, as the plan cuts it."""
        return batch.split(self.plan.rows) if self.plan.rows else batch.chunk(self.plan.num_micro_batches)

    def share(self, micro: int) -> list[Tensor] | None:
        """What backward starts with: how much a loss counts against one of average rows. None is 1, for all."""
        rows = self.plan.rows
        if not rows:
            return None
        loss = self.stages[self.last].kept[micro].outputs[0].detach()
        return [torch.full_like(loss, rows[micro] * len(rows) / sum(rows))]

    def _forward(self, work: Work, given: list[Tensor], target: Tensor | None) -> list[Tensor]:
        return self.stages[work.stage].forward(work.micro, given, target)

    def _backward(self, work: Work) -> None:
        stage = self.stages[work.stage]
        if work.kind == "W":
            self._observed(work, lambda: stage.backward_to_weights(work.micro))
            return
        grads = self.share(work.micro) if work.stage == self.last else self._arrived("B", work)
        run = stage.backward if work.kind == "B" else stage.backward_to_inputs
        self._observed(work, lambda: run(work.micro, grads))

    def _observed(self, work: Work, run: Callable[[], list[Tensor]]) -> list[Tensor]:
        """Compute between two calls of the observer, then hand the result on."""
        self.observe(work.kind, "start", work.stage, work.micro)
        made = run()
        self.observe(work.kind, "end", work.stage, work.micro)
        target = None if work.kind == "W" else self.wire.target(work)
        if target is not None:
            self.hand_on(work, made, target)
        return made

    def hand_on(self, work: Work, made: list[Tensor], target: int) -> None:
        """To another rank, or to the neighbouring stage of this one."""
        if target == self.wire.rank:
            kind = "F" if work.kind == "F" else "B"
            self._local[Message((kind, work.stage, work.micro))] = [x.detach() for x in made]
        else:
            self.wire.send(made, target)

    def _arrived(self, kind: str, work: Work) -> list[Tensor]:
        stage = work.stage - 1 if kind == "F" else work.stage + 1
        message = Message((kind, stage, work.micro))
        peer = self.wire.placement[stage]
        return self._local.pop(message) if peer == self.wire.rank else self.wire.receive(message, peer)

    # -- gradients -----------------------------------------------------------------------------------------

    def trained(self) -> list[nn.Parameter]:
        """Parameters of this rank's stages, each once, however many stages use it."""
        found = {id(p): p for stage in self.stages.values() for p in stage.module.parameters()}
        return [p for p in found.values() if p.requires_grad]

    def _take_gradients(self) -> list[Tensor | None]:
        """Gradients of earlier steps wait aside: they are means already."""
        before = [p.grad for p in self.trained()]
        for p in self.trained():
            p.grad = None
        return before

    def _put_back(self, before: list[Tensor | None]) -> None:
        for p, earlier in zip(self.trained(), before, strict=True):
            if earlier is not None:
                p.grad = earlier if p.grad is None else earlier + p.grad

    def mean(self) -> None:
        """Once: divide the sum over micro-batches, add up uses of a tied weight, average over replicas."""
        for p in self.trained():
            if p.grad is not None:
                p.grad /= self.plan.num_micro_batches
        self.tie()
        if self.data_group is not None:
            for p in self.trained():
                g = torch.zeros_like(p) if p.grad is None else p.grad
                dist.all_reduce(g, group=self.data_group)
                p.grad = g / self.data_group.size()

    def tie(self) -> None:
        """Owners of a tied weight exchange their gradients and add them in stage order: equal on all, bit for bit."""
        owners = {stage: self.wire.placement[stage] for stage, _ in self.tied}
        if len(set(owners.values())) < 2:
            return
        mine = [(s, n) for s, n in self.tied if owners[s] == self.wire.rank]
        for stage, name in mine:
            weight = self.stages[stage].module.get_parameter(name)
            g = torch.zeros_like(weight) if weight.grad is None else weight.grad
            parts = {stage: g}
            for other, rank in owners.items():
                if other != stage:
                    peer = dist.get_global_rank(self.wire.group, rank)
                    parts[other] = torch.empty_like(g)
                    arriving = dist.irecv(parts[other], peer, group=self.wire.group)
                    self.wire.send_whole([g], rank)
                    assert arriving is not None
                    arriving.wait()
            weight.grad = torch.stack([parts[s] for s in sorted(parts)]).sum(0)
        self.wire.finish()

    def gradients(self, stage: int) -> dict[str, Tensor | None]:
        """See the protocol."""
        return {n: p.grad for n, p in self.stages[stage].module.named_parameters()}

    def parameters(self, stage: int) -> dict[str, Tensor]:
        """See the protocol."""
        return {n: p.detach() for n, p in self.stages[stage].module.named_parameters()}
