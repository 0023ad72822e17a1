"""Context parallelism from first principles: layout, refusals, and the choice of a variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch.distributed as dist
from torch import Tensor

from parproof.errors import InvalidPlan
from parproof.subjects.context_protocol import BALANCES, VARIANTS, ContextPlan, Partial
from parproof.subjects.reference.context_functions import FUNCTIONS, Call
from parproof.subjects.reference.context_sharing import SharingAttention
from parproof.subjects.reference.context_softmax import Softmax
from parproof.subjects.reference.context_wire import ContextWire


class ContextAttention:
    """The three variants on one arithmetic and one set of exchanges."""

    softmax: type[Softmax] = Softmax
    wire: type[ContextWire] = ContextWire

    def positions(self, plan: ContextPlan, rank: int, world_size: int) -> list[int]:
        """See the protocol."""
        check_layout(plan, world_size)
        length, p = plan.sequence_length, world_size
        if plan.balance == "striped":
            return list(range(rank, length, p))
        if plan.balance == "contiguous":
            size = length // p
            return list(range(rank * size, (rank + 1) * size))
        documents = plan.document_lengths if plan.balance == "document_zigzag" else ()
        held: list[int] = []
        start = 0
        for of_document in documents or (length,):
            size = of_document // (2 * p)
            for block in (rank, 2 * p - 1 - rank):
                held += range(start + block * size, start + (block + 1) * size)
            start += of_document
        return held

    def attend(self, q: Tensor, k: Tensor, v: Tensor, plan: ContextPlan, group: dist.ProcessGroup) -> Tensor:
        """See the protocol."""
        nothing = k[:, :, :0].detach()
        return self.attend_after(nothing, nothing, q, k, v, plan, group)

    def attend_after(
        self,
        prefix_k: Tensor,
        prefix_v: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        plan: ContextPlan,
        group: dist.ProcessGroup,
    ) -> Tensor:
        """As attend, with keys and values that every rank holds, in front of all others."""
        p = group.size()
        check_layout(plan, p)
        check_heads(plan, q.shape[1], k.shape[1], p)
        layout = [self.positions(plan, rank, p) for rank in range(p)]
        call = Call(self.softmax(plan, q.shape[-1], q.dtype), self.wire(group), layout)
        out: Tensor = FUNCTIONS[plan.variant].apply(q, k, v, prefix_k, prefix_v, call)
        return out

    def sharing(
        self, shared: Mapping[str, Tensor], plan: ContextPlan, group: dist.ProcessGroup
    ) -> SharingAttention:
        """See the protocol."""
        return SharingAttention(self, shared, plan, group)

    def algorithm(self, plan: ContextPlan) -> str:
        """See the protocol."""
        return plan.variant

    def merge(self, parts: Sequence[Partial]) -> Tensor:
        """See the protocol."""
        merged = parts[0]
        for part in parts[1:]:
            merged = self.softmax.merge(merged, part)
        return self.softmax.finish(merged)[0]


def check_layout(plan: ContextPlan, world_size: int) -> None:
    """Refuse what does not split evenly: a shorter last shard would be padded or lost by somebody."""
    where = "context parallel plan"
    if plan.variant not in VARIANTS:
        raise InvalidPlan(f"variant {plan.variant!r}", expected=f"one of {', '.join(VARIANTS)}", where=where)
    if plan.balance not in BALANCES:
        raise InvalidPlan(f"balance {plan.balance!r}", expected=f"one of {', '.join(BALANCES)}", where=where)
    parts = 2 * world_size if plan.balance.endswith("zigzag") else world_size
    if plan.sequence_length < parts or plan.sequence_length % parts:
        raise InvalidPlan(
            f"sequence of {plan.sequence_length} over {world_size} ranks ({plan.balance})",
            expected=f"a multiple of {parts}",
            where=where,
            next_step="pad the sequence before it is split, and mask the padding as a document of its own",
        )
    if plan.document_lengths and (
        sum(plan.document_lengths) != plan.sequence_length or min(plan.document_lengths) < 1
    ):
        raise InvalidPlan(
            f"documents of {sum(plan.document_lengths)} positions in all",
            expected=f"positive lengths that sum to {plan.sequence_length}",
            where=where,
        )
    if plan.balance == "document_zigzag" and (uneven := [n for n in plan.document_lengths if n % parts]):
        raise InvalidPlan(
            f"document of {uneven[0]} over {world_size} ranks (document_zigzag)",
            expected=f"multiples of {parts}",
            where=where,
            next_step="pad each document before the sequence is split",
        )


def check_heads(plan: ContextPlan, num_heads: int, num_kv_heads: int, world_size: int) -> None:
    """Queries share key/value heads evenly; Ulysses also splits both kinds of heads over ranks."""
    if num_heads % num_kv_heads:
        raise InvalidPlan(f"{num_heads} query heads on {num_kv_heads} key/value heads", expected="a multiple")
    if plan.variant == "ulysses" and (num_heads % world_size or num_kv_heads % world_size):
        raise InvalidPlan(
            f"{num_heads} query and {num_kv_heads} key/value heads over {world_size} ranks",
            expected=f"multiples of {world_size}",
            where="ulysses",
            next_step="use the ring or all_gather variant, which keep all heads on every rank",
        )
