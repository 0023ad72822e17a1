"""Interface of the mechanism `expert`: a layer of experts that are spread over ranks, and the tokens sent to them.

Letters   n local tokens, D width, H hidden width, E experts, k routes for each token
Ranks     dp × ep × tp: an `ep` group shares the experts out; `dp` ranks hold the same experts for other tokens;
          `tp` ranks hold the same tokens and parts of the same experts.
Route     one (token, slot) pair; routes compete for an expert's places in the order (source rank, token, slot).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from parproof.subjects.tensor_protocol import Pieces

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

DISPATCHERS = ("all_to_all", "padded", "all_gather")
GATES = ("linear", "softmax", "renormalised")
SCOPES = ("group", "rank")
NORMALISATIONS = ("global", "local")


@dataclass(frozen=True)
class ExpertPlan:
    """How tokens find their experts.

    dispatcher       all_to_all: rows as they fall (uneven splits); padded: every (source, expert) pair gets as many
                     rows as the capacity; all_gather: every rank gets all tokens and reduce-scatters its part
    gate             weight of a route: linear: the logit itself (exact on integers); softmax: the probability
                     over all experts; renormalised: over the chosen ones (before anything is dropped)
    capacity_factor  places at each expert: ceil(routes · factor / E), the product taken in decimal; None: no limit
    capacity_scope   group: all routes of an ep group share the places; rank: each source rank has places of its own
    normalisation    global: mean over all valid tokens; local: mean over data ranks of each rank's own mean
    placement        expert → ep rank; empty: contiguous blocks, E must be divisible
    """

    num_experts: int
    top_k: int
    dispatcher: str = "all_to_all"
    gate: str = "linear"
    capacity_factor: float | None = None
    capacity_scope: str = "group"
    normalisation: str = "global"
    placement: tuple[int, ...] = ()


@dataclass(frozen=True)
class Axes:
    """The groups of this rank; None where the axis has one rank. `data` is dp × ep; `mesh` is all of them."""

    ep: ProcessGroup | None
    dp: ProcessGroup | None
    tp: ProcessGroup | None
    data: ProcessGroup | None
    mesh: ProcessGroup | None


@dataclass(frozen=True)
class Routing:
    """What became of this rank's routes. ids [n, k] (−1 for padding), weights [n, k], kept [n, k]."""

    ids: Tensor
    weights: Tensor
    kept: Tensor


@dataclass(frozen=True)
class Account:
    """What a routing means for load and traffic. Ratios are over all routes asked for; 0 when there are none.

    loads             routes asked for, by expert; padding has none
    capacity          places at each expert
    overflow          routes that found no place; effective_tokens: routes that did
    max_over_mean     busiest expert over the mean, rounded to 3 digits
    sent              kept routes, source rank × owner rank: row sums leave, column sums arrive
    logical_bytes     all routes · width · element size, wherever they go
    network_bytes     kept routes to another rank · width · element size, one way; round_trip_bytes twice that
    """

    loads: tuple[int, ...]
    capacity: int
    overflow: int
    effective_tokens: int
    max_over_mean: float
    cross_rank_ratio: float
    local_hit_ratio: float
    sent: tuple[tuple[int, ...], ...]
    logical_bytes: int
    network_bytes: int
    round_trip_bytes: int


@dataclass(frozen=True)
class Exchange:
    """What a subject says it sends; the ledger checks it (names of parproof.cost.expert).

    counts   all_gather.mesh, all_gather.ep or all_to_all.ep; rows: a dispatcher
    """

    counts: str
    rows: str


class ExpertLayer(Protocol):
    """One layer on one rank."""

    def __call__(self, x: Tensor, valid: Tensor, replayed: Tensor | None = None) -> Tensor:
        """x [n, D] → [n, D], differentiable in x and the parameters. n may differ over data ranks, or be 0.

        valid      [n] bool; padding tokens (False) are routed nowhere and get 0
        replayed   [n, k] expert ids to use instead of the router's choice; weights are still the router's
        Expert     down[e] · relu(up[e] · x)
        Ties       equal logits go to the lower expert id
        Errors     InvalidPlan on the ranks that would otherwise wait for each other: an expert id out of range,
                   ranks of one tp group whose routes differ
        """

    def routing(self) -> Routing:
        """The routes of the last call."""

    def mean_loss(self, per_token: Tensor, valid: Tensor) -> Tensor:
        """Scalar, the same on all ranks. Summed over data ranks, local gradients are those of the scalar."""

    def gradients(self) -> Pieces:
        """«router» [E, D], «up» [E, H, D] and «down» [E, D, H]: finished gradients of what this rank holds."""


class ExpertParallel(Protocol):
    """What a subject implements. Capabilities: expert.DISPATCHER, expert.tp, expert.replay, expert.placement,
    expert.account, expert.recommend, expert.refusals, expert.ties, expert.normalisation.local,
    expert.capacity.SCOPE, expert.gate.GATE."""

    def layer(self, plan: ExpertPlan, params: Mapping[str, Tensor], axes: Axes) -> ExpertLayer:
        """Take this rank's part of router [E, D], up [E, H, D], down [E, D, H] (whole and equal on all ranks).

        Errors   InvalidPlan for a plan that cannot be: before anything is sent
        """

    def exchange(self, plan: ExpertPlan) -> Exchange:
        """How this subject's layer communicates."""

    def account(
        self,
        plan: ExpertPlan,
        routes: Sequence[Sequence[Sequence[int]]],
        owners: Sequence[int],
        *,
        width: int,
        element_bytes: int,
    ) -> Account:
        """Figures of a routing, all sources sharing the capacity. routes[source][token]: expert ids, none: padding.

        Both ratios are over all routes asked for, dropped ones too: they add up to 1.
        Errors   InvalidPlan, with the numbers in it: an id out of range («id 2»), experts without owner («1 owners
                 for 2 experts»), an owner that is no source («expert 1 belongs to rank 1»), a factor that leaves
                 no place. They belong to `expert.account`.
        """

    def recommend(self, account: Account) -> str:
        """«accept», «tune» or «reject». Thresholds are inclusive, on overflow, max_over_mean and cross_rank_ratio:
        accept to (0, 1.2, 0.5), tune to (1, 1.8, 0.9); no routes: reject."""
