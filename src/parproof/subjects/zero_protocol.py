"""PAR-ZERO-STATE: the interface a sharding of training state has to offer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor, nn

STRATEGIES = ("ddp", "zero1", "zero2", "zero3", "hsdp")

# kind of state → name of the parameter → where each piece starts in the flattened parameter, and the piece
Pieces = dict[str, list[tuple[int, "Tensor"]]]


@dataclass(frozen=True)
class StatePlan:
    """How training state is laid out and updated.

    strategy      ddp | zero1 | zero2 | zero3 | hsdp (zero3 inside a shard group, copies across `replicas`)
    accumulation  micro-batches per optimizer step; the gradient is the mean over micro-batches and ranks
    optimizer     sgd | adam (decay is added to the gradient) | adamw (decay shrinks the parameter)
    max_norm      clip to this global L2 norm with the factor min(1, max_norm / (norm + 1e-6)); None: never
    replicas      hsdp only: number of shard groups; they hold equal state
    mixed_bf16    forward and backward in bfloat16, the update on float32 masters (StateLayout.masters says where)
    find_unused   parameters that no rank used keep their state; without it that may be an error
    no_decay      parameters without weight decay: a second parameter group, interleaved with the first
    options       what one implementation needs to be told: static_graph, fused, raw_hook, small_buckets;
                  double_backward: the loss has a gradient in it, so a second backward needs the parameters again
    """

    strategy: str
    accumulation: int = 1
    optimizer: str = "adamw"
    lr: float = 2.0**-7
    betas: tuple[float, float] = (0.9, 0.99)
    eps: float = 0.1
    weight_decay: float = 0.0
    max_norm: float | None = None
    replicas: int = 1
    mixed_bf16: bool = False
    find_unused: bool = False
    no_decay: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class StateLayout:
    """What an implementation chose where the strategy leaves a choice; the cost model needs it.

    ownership           elements: equal slices of flat buffers, one per unit (one in all for ddp to zero2)
                        rows: equal numbers of rows of each parameter, the last ranks may hold none
                        parameters: whole parameters, largest first to the rank with least
    parameters_at_rest  zero2 between steps: replicated (gathered after the step) or sharded (gathered
                        before each forward, kept until after backward)
    masters             with mixed_bf16, apart: bfloat16 parameters and gradients beside float32 copies of the
                        parameters (2 + 2 + 12 bytes); at_rest: parameters and gradients between steps are
                        float32, and cast where they are gathered (4 + 4 + 8)
    keeps_buckets       memory of reduced gradients stays allocated after a step, for the next one
    """

    ownership: str
    parameters_at_rest: str = "replicated"
    keeps_buckets: bool = False
    masters: str = "apart"


class PendingSave(Protocol):
    """A checkpoint being written."""

    def result(self) -> object:
        """Wait until it is complete."""


class StateTraining(Protocol):
    """One model in training on all ranks of the default group. All methods are collective.

    A window is `accumulation` rounds of forward and backward, then clip, then step. In all but the last
    round of a window no gradient may be communicated.
    """

    layout: StateLayout

    def forward(self, *batch: Tensor, last: bool) -> Tensor:
        """The module's loss on this rank's micro-batch; `last`: it ends its window."""

    def backward(self, loss: Tensor) -> None:
        """Accumulate gradients; after the last micro-batch of a window they are the global mean."""

    def clip(self) -> float:
        """Clip to plan.max_norm. Returns the global norm before clipping, the same on every rank."""

    def step(self) -> None:
        """Update, make parameters current wherever they are replicated, release the gradients."""

    def pieces(self, kind: str) -> Pieces:
        """What this rank holds of `parameters`, `gradients`, `exp_avg` or `exp_avg_sq`, no communication.

        A parameter that received no gradient, and one without state, is absent.
        """

    def steps(self) -> dict[str, int]:
        """Updates made so far, for each parameter with optimizer state here."""

    def held(self) -> dict[str, list[Tensor]]:
        """Tensors resident for `parameters`, `gradients` and `optimizer`; their storages are counted."""

    def save(self, directory: str) -> None:
        """Write parameters and optimizer state so that any world size can load them."""

    def save_async(self, directory: str) -> PendingSave:
        """Like save, but training may go on at once; the checkpoint holds the state at the call."""

    def load(self, directory: str) -> None:
        """Restore. Refuses names that are missing on either side."""

    def raw_gradients(self) -> Pieces:
        """With the option raw_hook: gradients as a communication hook received them."""


class StateSharding(Protocol):
    """The mechanism `zero` of a subject."""

    def build(self, plan: StatePlan, module: nn.Module, units: Sequence[str]) -> StateTraining:
        """Put a module under a plan. `units` names the submodules that are gathered as one.

        Errors   ValueError (or RuntimeError) that names what is wrong, before anything is sent: unknown
                 strategy or optimizer, accumulation < 1, lr < 0, no trainable parameter, replicas that do
                 not divide the world.
        """
