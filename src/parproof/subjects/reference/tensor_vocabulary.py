"""Embedding and cross entropy with the vocabulary split over a group.

Legend: V vocabulary, N tokens, p ranks.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from parproof.errors import InvalidPlan
from parproof.subjects.reference.tensor_layers import Layer, whole_index, with_range
from parproof.subjects.reference.tensor_wire import Regions
from parproof.subjects.tensor_protocol import Piece


class VocabularyEmbedding(Layer):
    """Each rank looks up the ids it owns and gives zero for the rest.

    Cost  forward: all_reduce of the output; backward: nothing
    """

    def __init__(self, wire: Regions, params: Mapping[str, Tensor]) -> None:
        super().__init__(wire)
        self.keep_split("weight", params["weight"], 0)
        self.start, self.stop = wire.bounds(params["weight"].shape[0])[wire.rank]

    def __call__(self, x: Tensor, *extra: Tensor) -> Piece:
        """Whole ids in, whole vectors out."""
        mine = (x >= self.start) & (x < self.stop)
        rows = functional.embedding((x - self.start).where(mine, torch.zeros_like(x)), self.weight("weight"))
        y = self.wire.leave(self.masked(rows, mine))
        return Piece(y, whole_index(y.shape))

    def masked(self, rows: Tensor, mine: Tensor) -> Tensor:
        """Zero where another rank has the answer; this also stops the gradient."""
        return rows * mine.unsqueeze(-1)


class VocabularyLoss(Layer):
    """log Σ exp(l) − l[target], mean over the tokens that count, without ever gathering the logits.

    Cost   forward: three all_reduces of N numbers (largest logit, Σ exp, logit of the target); backward: nothing
    Exact  the largest logit is subtracted before exp, so that no finite logit overflows
    """

    def __init__(self, wire: Regions, vocabulary: int, ignore_index: int) -> None:
        super().__init__(wire)
        if vocabulary < wire.size:
            raise InvalidPlan(
                f"vocabulary of {vocabulary} over {wire.size} ranks", expected="at least one id for each rank"
            )
        self.bounds, self.ignore_index = wire.bounds(vocabulary), ignore_index
        self.start, self.stop = self.bounds[wire.rank]

    def take(self, whole: Tensor) -> Piece:
        """This rank's logits of every token."""
        index = with_range(whole_index(whole.shape), -1, (self.start, self.stop))
        return Piece(self.wire.take(whole, -1, self.bounds), index)

    def __call__(self, x: Tensor, *extra: Tensor) -> Piece:
        """Logits [N, V/p] and targets [N] in; the loss out, the same on every rank."""
        (targets,) = extra
        counts = self.counting(targets)
        shifted = x - self.largest(x).unsqueeze(-1)
        log_sum = self.wire.leave(shifted.exp().sum(-1)).log()
        mine = (targets >= self.start) & (targets < self.stop)
        column = (targets - self.start).where(mine, torch.zeros_like(targets))
        of_target = self.wire.leave(shifted.gather(-1, column.unsqueeze(-1)).squeeze(-1) * mine)
        loss = ((log_sum - of_target) * counts).sum() / counts.sum()
        return Piece(loss, ())

    def counting(self, targets: Tensor) -> Tensor:
        """Which tokens count."""
        return targets != self.ignore_index

    def largest(self, x: Tensor) -> Tensor:
        """The largest logit of each token over all ranks; the loss does not depend on it, so no gradient."""
        return self.wire.max(x.detach().amax(-1))
