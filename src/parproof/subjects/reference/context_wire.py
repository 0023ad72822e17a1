"""What the ranks of a context group say to each other; one method an exchange, so that a variant can change one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


class ContextWire:
    """Exchanges over one group. Sequences lie in dim 2, heads in dim 1."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.p = group.size()
        self.me = group.rank()

    # -- ring ------------------------------------------------------------------------------------------------

    def num_blocks(self) -> int:
        """Blocks of keys that a rank computes with, its own included."""
        return self.p

    def source(self, step: int) -> int:
        """Whose K/V this rank holds after `step` rounds."""
        return (self.me - step) % self.p

    def pass_on(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Send each tensor to the next rank of the ring and return what the previous one sent."""
        to = dist.get_global_rank(self.group, (self.me + 1) % self.p)
        source = dist.get_global_rank(self.group, (self.me - 1) % self.p)
        received = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in tensors]
        operations = []
        for mine, theirs in zip(tensors, received, strict=True):
            operations.append(dist.P2POp(dist.isend, mine.contiguous(), to, self.group))
            operations.append(dist.P2POp(dist.irecv, theirs, source, self.group))
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        return received

    def bring_home(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """After p−1 rounds each gradient is one rank short of its owner."""
        return self.pass_on(gradients) if self.p > 1 else list(gradients)

    # -- all at once -----------------------------------------------------------------------------------------

    def gather_sequence(self, x: Tensor) -> Tensor:
        """All ranks' positions, in rank order."""
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(self.p)]
        dist.all_gather(parts, x.contiguous(), group=self.group)
        return torch.cat(parts, dim=2)

    def sum_and_split_sequence(self, x: Tensor) -> Tensor:
        """Transpose of gather_sequence: sum over ranks, keep this rank's positions."""
        parts = [part.contiguous() for part in x.chunk(self.p, dim=2)]
        mine = torch.empty_like(parts[0])
        dist.reduce_scatter(mine, parts, group=self.group)
        return mine

    # -- what every rank holds whole -------------------------------------------------------------------------

    def join(self, prefix: Tensor, keys: Tensor, step: int) -> Tensor:
        """A prefix in front of the keys of the first round: all ranks hold the same one, so it counts once."""
        return keys if step else torch.cat([prefix, keys], dim=2)

    def own_heads(self, x: Tensor) -> Tensor:
        """The heads of x that this rank has after to_heads."""
        return x.chunk(self.p, dim=1)[self.me]

    def among_all_heads(self, x: Tensor) -> Tensor:
        """Transpose of own_heads: zero for the heads of other ranks."""
        others = torch.zeros_like(x)
        return torch.cat([x if rank == self.me else others for rank in range(self.p)], dim=1)

    def sum_over_ranks(self, x: Tensor) -> Tensor:
        """Each rank saw its own queries; the gradient of what all ranks share is the sum of theirs."""
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=self.group)
        return total

    # -- Ulysses ---------------------------------------------------------------------------------------------

    def to_heads(self, x: Tensor) -> Tensor:
        """[b, h, s, d] of the local positions → [b, h/p, p·s, d]: all positions of this rank's heads."""
        return torch.cat(self.exchange(x.chunk(self.p, dim=1)), dim=2)

    def to_sequence(self, x: Tensor) -> Tensor:
        """Inverse (and transpose) of to_heads."""
        return torch.cat(self.exchange(x.chunk(self.p, dim=2)), dim=1)

    def exchange(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Part j goes to rank j; returns what each rank sent here."""
        sent = torch.stack(list(parts))
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self.group)
        return list(received.unbind(0))
