"""The interface of the mechanism `tensor`: layers split over the ranks of a group, and layouts of tensors.

A subject is given whole tensors, the same on every rank, and keeps the part it wants. It says which part that is
(`Piece.index`), so that a judge can compare it with the whole without asking the subject to put it together.

Convention for gradients: what several ranks hold in common is one value, and each of them is handed the same
gradient for it. No subject multiplies or divides by the number of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

Index = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Piece:
    """A rank's part of a whole tensor: `local` is `whole[start:stop, …]` with one (start, stop) per dim."""

    local: Tensor
    index: Index


Pieces = Mapping[str, Sequence[Piece]]


@dataclass(frozen=True)
class HeadPlan:
    """How attention heads are laid out over t ranks.

    kv_mode         shard: every rank has heads of its own; replicate: kv_replication ranks share one
    """

    q_heads_per_rank: int
    kv_mode: str
    kv_heads_per_rank: int
    kv_replication: int


@dataclass(frozen=True)
class Layout:
    """Where the parts of a tensor are: one placement per axis of a mesh of ranks, last axis fastest.

    placements   S0, S1, …: split along that dim; R: the same on all; P: to be summed
    flattened    the mesh's axes may be treated as one
    """

    mesh: tuple[int, ...]
    placements: tuple[str, ...]
    flattened: bool = False


class SplitLayer(Protocol):
    """A layer of which each rank holds a part."""

    def take(self, whole: Tensor) -> Piece:
        """This rank's part of the input (all of it where the layer wants all)."""
        ...

    def __call__(self, x: Tensor, *extra: Tensor) -> Piece:
        """This rank's part of the output; differentiable in x and in the parameters.

        extra   the targets, for a loss
        """
        ...

    def parameters(self) -> Pieces:
        """Parameter name → what this rank keeps of it."""
        ...

    def gradients(self) -> Pieces:
        """Parameter name → this rank's gradient, finished: it may communicate. Call it on all ranks."""
        ...


class TensorParallel(Protocol):
    """What a subject provides. Every method is called by all ranks of `group`, with the same whole tensors.

    Errors: InvalidPlan for sizes it does not split. It never gives a wrong answer for them.
    Capabilities: tensor.column, .row, .mlp, .attention.shard, .attention.replicate, .embedding, .loss, .sequence,
    .plan, .redistribute, .hand_over, .join, .flatten, .statistic, .view, .fill, .random.normal, .random.dropout,
    .gradient_norm; and, for what a move sends, .redistribute.{split,common,summand}_to_{split,common}.traffic
    """

    def column_linear(
        self, params: Mapping[str, Tensor], *, gather_output: bool, group: ProcessGroup
    ) -> SplitLayer:
        """weight [out, in] and bias [out] split along out; x [*, in] whole; output split or gathered."""
        ...

    def row_linear(
        self, params: Mapping[str, Tensor], *, input_is_split: bool, group: ProcessGroup
    ) -> SplitLayer:
        """weight [out, in] split along in, bias [out] on every rank; x [*, in] split or whole; output whole."""
        ...

    def mlp(self, params: Mapping[str, Tensor], *, activation: str, group: ProcessGroup) -> SplitLayer:
        """Column, activation, row; x and output whole.

        activation   gelu, relu: up.weight [hidden, in], up.bias, down.weight [out, hidden], down.bias
                     swiglu, geglu: gate_up.weight [2 hidden, in] (gate first) instead of up; biases optional
        """
        ...

    def attention(
        self, params: Mapping[str, Tensor], *, q_heads: int, kv_heads: int, group: ProcessGroup
    ) -> SplitLayer:
        """Causal attention over x [batch, tokens, width]; {q,k,v,o}.weight and optional .bias; head h of q uses
        head h * kv_heads // q_heads of k and v."""
        ...

    def embedding(self, params: Mapping[str, Tensor], *, group: ProcessGroup) -> SplitLayer:
        """weight [vocabulary, width] split along the vocabulary; x integer ids; output whole."""
        ...

    def vocabulary_loss(self, *, vocabulary: int, ignore_index: int, group: ProcessGroup) -> SplitLayer:
        """Mean cross entropy of logits [tokens, vocabulary] split along the vocabulary, with targets [tokens]."""
        ...

    def sequence_block(
        self, params: Mapping[str, Tensor], *, norm: str, activation: str, group: ProcessGroup
    ) -> SplitLayer:
        """norm, then the MLP, with x and output [batch, tokens, width] split along tokens.

        norm   layer: norm.weight, norm.bias; rms: norm.weight; eps is 1e-5
        """
        ...

    def plan_attention(self, q_heads: int, kv_heads: int, ranks: int) -> HeadPlan:
        """The head plan, or InvalidPlan."""
        ...

    def gradient_norm(self, layers: Sequence[SplitLayer]) -> float:
        """L2 norm of the gradients of whole layers together, the same on every rank.

        layers   one for each group they are split over; a rank brings the layers it has a part of
        """
        ...

    def shard(self, whole: Tensor, layout: Layout, *, group: ProcessGroup) -> Piece:
        """This rank's part of a whole tensor that every rank holds (no P): no longer than a part has to be."""
        ...

    def redistribute(
        self, piece: Piece, shape: tuple[int, ...], source: Layout, target: Layout, *, group: ProcessGroup
    ) -> Piece:
        """The same tensor in another layout, of which each rank gets its part; differentiable in piece.local."""
        ...

    def hand_over(
        self, piece: Piece, shape: tuple[int, ...], layout: Layout, *, group: ProcessGroup
    ) -> Piece:
        """The tensor given as plain local tensors to code that knows no layouts, and taken back: nothing changes,
        neither the values nor the gradient."""
        ...

    def join(
        self, local: Tensor, shape: tuple[int, ...] | None, layout: Layout, *, group: ProcessGroup
    ) -> Tensor:
        """The whole of a tensor on every rank, from the parts that the ranks hold; differentiable.

        shape   of the whole, or None: the parts are all that is known
        Errors  InvalidPlan on every rank where the parts are not cut as the subject would cut them, or where it
                needs to be told the shape
        """
        ...

    def flatten(self, mesh: tuple[int, ...], axes: tuple[int, ...], *, group: ProcessGroup) -> ProcessGroup:
        """Some axes of a mesh taken as one: the ranks that differ from this one along them, in order."""
        ...

    def statistic(
        self, piece: Piece, shape: tuple[int, ...], layout: Layout, name: str, *, group: ProcessGroup
    ) -> Tensor:
        """mean, var (unbiased), std or norm (L2) of the whole tensor."""
        ...

    def view(
        self,
        piece: Piece,
        shape: tuple[int, ...],
        layout: Layout,
        new_shape: tuple[int, ...],
        *,
        group: ProcessGroup,
    ) -> Piece:
        """whole.view(new_shape), in a layout of the subject's choice."""
        ...

    def fill(
        self,
        piece: Piece,
        shape: tuple[int, ...],
        layout: Layout,
        where: Index,
        value: float,
        *,
        group: ProcessGroup,
    ) -> Piece:
        """The tensor after whole[where] = value, in the same layout."""
        ...

    def random(
        self, shape: tuple[int, ...], layout: Layout, *, kind: str, seed: int, group: ProcessGroup
    ) -> Piece:
        """A random float64 tensor that depends on the seed and not on the layout.

        kind   normal: standard normal initial values; dropout: ones through dropout with p = 0.5
        """
        ...
