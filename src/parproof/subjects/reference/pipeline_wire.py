"""Messages between stages: received in the order in which their sender sends them, whenever they are needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from parproof.subjects.pipeline_protocol import Boundary
from parproof.subjects.reference.pipeline_order import Work
from parproof.torch_names import all_gather_single


class Message(tuple[str, int, int]):
    """(kind, stage, micro-batch) of the event that made it: F its outputs, B the gradients of its inputs."""


class Wire:
    """Sends without waiting; a receive is posted with all those that its sender sends before it.

    A send over gloo is a rendezvous even for four bytes. Two neighbours in the steady state send to each other
    at the same time, so a send that waits for its receiver would wait for ever. Posting receives in the sender's
    order needs no tags, which not all backends have.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        orders: Sequence[Sequence[Work]],
        placement: Sequence[int],
        boundaries: Sequence[Sequence[Boundary]],
        device: torch.device | None = None,
        tensor_group: dist.ProcessGroup | None = None,
        rows: Sequence[int] = (),
    ) -> None:
        """`rows` of each micro-batch, where they are not those of the boundaries' shapes."""
        self.group, self.placement, self.boundaries = group, placement, boundaries
        self.rows = rows
        self.device, self.tensor_group = device, tensor_group
        self.rank = group.rank()
        self.orders = orders
        self._sends: list[tuple[dist.Work, Tensor]] = []
        self._due: dict[int, deque[Message]] = {}
        self._posted: dict[Message, list[tuple[dist.Work, Tensor]]] = {}

    def begin(self) -> None:
        """A new step: every peer starts its order again."""
        self._due = {peer: deque(self._from(peer)) for peer in range(self.group.size()) if peer != self.rank}

    def _from(self, peer: int) -> list[Message]:
        return [
            Message(("F" if work.kind == "F" else "B", work.stage, work.micro))
            for work in self.orders[peer]
            if work.kind != "W" and self.target(work) == self.rank
        ]

    def target(self, work: Work) -> int | None:
        """Rank that needs the result of an event; None at the ends of the model."""
        stage = work.stage + (1 if work.kind == "F" else -1)
        return self.placement[stage] if 0 <= stage < len(self.placement) else None

    def send(self, tensors: Sequence[Tensor], peer: int) -> None:
        """Start sending what crosses a boundary."""
        self.send_whole(tensors, peer)

    def send_whole(self, tensors: Sequence[Tensor], peer: int) -> None:
        """Start sending; forget what has arrived, so that memory is given back during the step."""
        self._sends = [pair for pair in self._sends if not pair[0].is_completed()]
        for x in tensors:
            x = x.detach().contiguous()
            work = dist.isend(x, dist.get_global_rank(self.group, peer), group=self.group)
            assert work is not None
            self._sends.append((work, x))

    def receive(self, message: Message, peer: int) -> list[Tensor]:
        """Wait for a message."""
        while message not in self._posted:
            following = self._due[peer].popleft()
            self._posted[following] = [self._post(b, peer) for b in self.expected(following)]
        parts = self._posted.pop(message)
        for work, _ in parts:
            work.wait()
        return [x for _, x in parts]

    def expected(self, message: Message) -> list[Boundary]:
        """What a message is made of: all outputs, or gradients of those that have one, of its micro-batch's rows."""
        kind, stage, micro = message
        leaving = self.boundaries[stage if kind == "F" else stage - 1]
        made = [b for b in leaving if kind == "F" or b.differentiable]
        return [replace(b, shape=(self.rows[micro], *b.shape[1:])) for b in made] if self.rows else made

    def _post(self, boundary: Boundary, peer: int) -> tuple[dist.Work, Tensor]:
        x = torch.empty(boundary.shape, dtype=boundary.dtype, device=self.device)
        work = dist.irecv(x, dist.get_global_rank(self.group, peer), group=self.group)
        assert work is not None
        return work, x

    def finish(self) -> None:
        """Wait until everything has left."""
        for work, _ in self._sends:
            work.wait()
        self._sends = []


class PartsWire(Wire):
    """One crossing for all ranks of a tensor group: each sends its part, the receivers gather.

    The gather is made when the message is needed: tensor ranks run the same order, so they meet there.
    """

    def send(self, tensors: Sequence[Tensor], peer: int) -> None:
        """This rank's part of each flat tensor."""
        assert self.tensor_group is not None
        t, me = self.tensor_group.size(), self.tensor_group.rank()
        self.send_whole([x.detach().reshape(-1).chunk(t)[me] for x in tensors], peer)

    def receive(self, message: Message, peer: int) -> list[Tensor]:
        """Wait for the own part, then for those of the others."""
        expected = self.expected(message)
        return [self._whole(x, b) for x, b in zip(super().receive(message, peer), expected, strict=True)]

    def _whole(self, part: Tensor, boundary: Boundary) -> Tensor:
        whole = torch.empty(boundary.shape, dtype=boundary.dtype, device=self.device)
        all_gather_single(whole.view(-1), part, group=self.tensor_group)
        return whole

    def _post(self, boundary: Boundary, peer: int) -> tuple[dist.Work, Tensor]:
        assert self.tensor_group is not None
        num_elements = torch.Size(boundary.shape).numel() // self.tensor_group.size()
        return super()._post(Boundary((num_elements,), boundary.dtype), peer)
