"""Interface of the mechanism `context`: attention over a sequence that is split over ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

VARIANTS = ("ring", "all_gather", "ulysses")
BALANCES = ("contiguous", "zigzag", "striped", "document_zigzag")
SHARED = ("q_weight", "k_weight", "prefix_k", "prefix_v")
NORM_EPS = 2.0**-20


@dataclass(frozen=True)
class ContextPlan:
    """How a sequence is split and attended to.

    variant            ring: K/V travel rank to rank; all_gather: each rank gets all K/V;
                       ulysses: all-to-all from sequence shards to head shards and back
    balance            contiguous blocks; zigzag: block i and block 2p−1−i; striped: every p-th position;
                       document_zigzag: zigzag within each document, which a rank holds one after another
    sequence_length    S, of the whole sequence
    document_lengths   attention stays within a document; empty: one document
    """

    variant: str
    balance: str
    causal: bool
    sequence_length: int
    document_lengths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Partial:
    """Softmax over a part of the keys, ready to be merged with other parts.

    Shapes   peak [.., s]  largest score; weight [.., s]  sum of exp(score − peak);
             value [.., s, d]  sum of exp(score − peak) · v
    """

    peak: Tensor
    weight: Tensor
    value: Tensor


class SharingAttention(Protocol):
    """One attention layer of one rank with tensors that every rank holds whole; it is called again and again."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """As ContextAttention.attend, with the shared tensors in it; differentiable in q, k, v."""

    def gradients(self) -> Mapping[str, Tensor]:
        """Gradients of the shared tensors over the whole sequence, the same on all ranks, as sums over all backward
        passes of this layer so far."""


class ContextAttention(Protocol):
    """What a subject implements. b batch, h query heads, g key/value heads (g divides h), s = S/p, d head width."""

    def positions(self, plan: ContextPlan, rank: int, world_size: int) -> list[int]:
        """Global positions that a rank holds, in the order in which it holds them.

        Errors   InvalidPlan when S does not split evenly, or the plan is unknown
        """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, plan: ContextPlan, group: ProcessGroup) -> Tensor:
        """Scaled dot-product attention of the local queries with all keys; scale 1/sqrt(d); differentiable.

        Shapes   q [b, h, s, d]; k, v [b, g, s, d]; returns [b, h, s, d] in the dtype of q
        Errors   InvalidPlan for a combination that the variant cannot do
        """

    def sharing(
        self, shared: Mapping[str, Tensor], plan: ContextPlan, group: ProcessGroup
    ) -> SharingAttention:
        """A layer with tensors that every rank holds whole and equal; any of these pairs:

        q_weight, k_weight   q and k are RMS-normed before they meet: x / sqrt(mean(x²) + NORM_EPS) · weight.
                             Weights of d elements: over each head; of h·d and g·d: over all heads of a position
        prefix_k, prefix_v   [b, g, n, d] keys and values that every query sees, once, and that no norm touches
        Errors   InvalidPlan for one of a pair, sizes that do not fit, a prefix beside documents
        """

    def algorithm(self, plan: ContextPlan) -> str:
        """Name of the exchange it uses, a key of parproof.cost.context.traffic; the ledger checks it."""

    def merge(self, parts: Sequence[Partial]) -> Tensor:
        """Online softmax: [.., s, d] attention over the union of the parts' keys, in any order."""
