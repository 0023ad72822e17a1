"""Mutants of PAR-NCCL-COLLECTIVE, on conduct: completion, traffic, times and failures, with one lie each."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from parproof.subjects.protocol import Subject
from parproof.subjects.reference.collectives import Collectives
from parproof.subjects.reference.collectives_wire import Peers, Rounds, Signature


def _mutant(name: str) -> Subject:
    return Subject(name=name, mechanisms={"collectives": f"{__name__}:{name}"})


# -- completion ----------------------------------------------------------------------------------------------


class ClaimsCompletion:
    """A handle that calls itself complete from the start."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def wait(self) -> None:
        self._inner.wait()

    def is_completed(self) -> bool:
        return True


class _WaitsForNothing(ClaimsCompletion):
    def wait(self) -> None:
        return None

    def is_completed(self) -> bool:
        return False


class CompleteAtOnce(Collectives):
    def _start(self, group: ProcessGroup, signature: Signature, body: Any, async_op: bool) -> Any:
        started = super()._start(group, signature, body, async_op)
        return ClaimsCompletion(started) if started else None


class WaitDoesNothing(Collectives):
    def _start(self, group: ProcessGroup, signature: Signature, body: Any, async_op: bool) -> Any:
        started = super()._start(group, signature, body, async_op)
        return _WaitsForNothing(started) if started else None


class BarrierOfNeighbours(Collectives):
    def barrier(self, group: ProcessGroup, async_op: bool = False) -> Any:
        def nothing(peers: Peers) -> Rounds:
            yield from ()

        return self._start(group, Signature("barrier"), nothing, async_op)


# -- traffic, times, failures --------------------------------------------------------------------------------


class CallsTwice(Collectives):
    def all_gather(self, outs: list[Tensor], x: Tensor, group: ProcessGroup, async_op: bool = False) -> Any:
        super().all_gather(outs, x, group)
        return super().all_gather(outs, x, group, async_op)


class BarrierBefore(Collectives):
    def broadcast(self, x: Tensor, root: int, group: ProcessGroup, async_op: bool = False) -> Any:
        dist.barrier(group=group)
        return super().broadcast(x, root, group, async_op)


class ReduceByAllReduce(Collectives):
    def reduce(self, x: Tensor, op: str, root: int, group: ProcessGroup, async_op: bool = False) -> Any:
        total = x.clone()
        found = self.all_reduce(total, op, group, async_op)
        if dist.get_rank(group) == root:
            x.copy_(total)
        return found


class LargeIsCut(Collectives):
    def all_to_all_single(
        self,
        out: Tensor,
        x: Tensor,
        out_splits: list[int] | None,
        in_splits: list[int] | None,
        group: ProcessGroup,
        async_op: bool = False,
    ) -> Any:
        found = super().all_to_all_single(out, x, out_splits, in_splits, group, async_op)
        out.view(-1)[2**18 :].zero_() if out.is_contiguous() else None
        return found


class ReplaysTheFirst(Collectives):
    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[int, ...], Tensor] = {}

    def all_gather_single(self, out: Tensor, x: Tensor, group: ProcessGroup, async_op: bool = False) -> Any:
        # By shape: addresses come again on one rank and not on another, and the ranks would part ways.
        if tuple(x.shape) not in self._seen:
            super().all_gather_single(out, x, group)
            self._seen[tuple(x.shape)] = out.clone()
        out.copy_(self._seen[tuple(x.shape)])


class SwallowsTimeouts(Collectives):
    def _start(self, group: ProcessGroup, signature: Signature, body: Any, async_op: bool) -> Any:
        try:
            return super()._start(group, signature, body, async_op)
        except RuntimeError:
            return None


class NoAgreement(Collectives):
    def _start(self, group: ProcessGroup, signature: Signature, body: Any, async_op: bool) -> Any:
        return self._wire.start(group, body, async_op)


complete_at_once = _mutant("CompleteAtOnce")
wait_does_nothing = _mutant("WaitDoesNothing")
barrier_of_neighbours = _mutant("BarrierOfNeighbours")
calls_twice = _mutant("CallsTwice")
barrier_before = _mutant("BarrierBefore")
reduce_by_all_reduce = _mutant("ReduceByAllReduce")
large_is_cut = _mutant("LargeIsCut")
replays_the_first = _mutant("ReplaysTheFirst")
swallows_timeouts = _mutant("SwallowsTimeouts")
no_agreement = _mutant("NoAgreement")
