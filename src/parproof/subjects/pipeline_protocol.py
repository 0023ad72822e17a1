"""Interface of the mechanism `pipeline`: a model cut into stages, a batch cut into micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.distributed import ProcessGroup

SCHEDULES = (
    "fill_drain",
    "one_f_one_b",
    "interleaved",
    "breadth_first",
    "zero_bubble",
    "zero_bubble_v",
    "dual_pipe_v",
)

# observe(kind, edge, stage, micro-batch): kind F, B, I or W (see below); edge «start» or «end».
Observer = Callable[[str, str, int, int], None]
Loss = Callable[["Tensor", "Tensor"], "Tensor"]


@dataclass(frozen=True)
class PipelinePlan:
    """How a step is cut up and in which order its parts run.

    schedule          fill_drain: all forwards, then all backwards; one_f_one_b: a backward makes room for each
                      forward; interleaved, breadth_first: several stages on each rank, round by round or stage
                      by stage; zero_bubble: backward to input and to weights apart; zero_bubble_v, dual_pipe_v:
                      two stages a rank, placed there and back, so that rank 0 has the first and the last
    num_micro_batches m; the batch is cut along dim 0 into m equal parts, or as `rows` says
    stages_per_rank   v
    rows              of each micro-batch, in order, where they are not equal; known to every rank, so that
                      nobody has to be told how much arrives
    """

    schedule: str
    num_micro_batches: int
    stages_per_rank: int = 1
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Boundary:
    """One tensor that leaves a stage for the next, for one micro-batch. Its gradient has the same shape.

    shape   dim 0 counts rows: those of an equal part of the batch, or of each micro-batch in turn (plan.rows)
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    differentiable: bool = True


@dataclass(frozen=True)
class PipelineModel:
    """The stages of one rank, and what it has to know of the others.

    stages       stage index → module, for the stages of this rank; a module takes the tensors that the stage
                 before gives, and gives one tensor or a tuple
    boundaries   for every stage but the last of the whole model: the tensors that leave it
    loss         (output of the last stage, targets) → scalar, a mean over the rows of a micro-batch
    tied         (stage, name) of parameters that are one: after a step all of them hold the sum of their
                 gradients. On one rank they are the same object, on several they started equal.
    """

    stages: Mapping[int, nn.Module]
    boundaries: Sequence[Sequence[Boundary]]
    loss: Loss
    tied: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class SplitGradients:
    """Backward in two parts: gradients of the inputs, then of the parameters, in order; None where there is none."""

    inputs: Sequence[Tensor | None]
    weights: Sequence[Tensor | None]


class PipelineTraining(Protocol):
    """A model in training. All methods are collective."""

    def step(self, inputs: Tensor | None, targets: Tensor | None) -> list[Tensor]:
        """Forward and backward of one batch; add the gradient of the mean loss over its rows to `.grad`.

        A micro-batch counts by its rows: where they are equal, this is the mean over micro-batches, and where
        they are not, it is not.

        inputs    where the first stage is; targets: where the last stage is; None elsewhere
        returns   the loss of each micro-batch, in order, where the last stage is; else nothing
        Steps without an update in between accumulate: the sum of their mean gradients.
        """

    def gradients(self, stage: int) -> dict[str, Tensor | None]:
        """Whole gradients of a stage of this rank, by parameter name."""

    def parameters(self, stage: int) -> dict[str, Tensor]:
        """Whole parameters of a stage of this rank, by name."""


class Pipeline(Protocol):
    """What a subject implements.

    setup   tensors that any two neighbouring stages on different ranks exchange once, in the first step, one from
            each to the other; object traffic apart. The ledger checks it.
    refusals  names of the error types that its refusals have: InvalidPlan, or what a stack that refuses by itself
            raises on purpose. Any other error is taken for an accident: KeyError, IndexError, AssertionError, …
    """

    setup: Sequence[Boundary]
    refusals: Sequence[str]

    def build(
        self,
        plan: PipelinePlan,
        model: PipelineModel,
        group: ProcessGroup,
        observe: Observer,
        *,
        batch_size: int,
        data_group: ProcessGroup | None = None,
        tensor_group: ProcessGroup | None = None,
    ) -> PipelineTraining:
        """Put the stages of this rank under a schedule.

        group        the ranks of the pipeline, in stage order
        observe      called at start and end of every forward and backward of a stage
        data_group   ranks with the same stages and other data; gradients are also the mean over them, and a
                     subject may keep only a part of each parameter on each rank
        tensor_group ranks with the same stages and the same data, one in each of as many pipelines. A tensor then
                     crosses a boundary once for all of them: each sends its part of the flat tensor, and who
                     receives gathers the parts. Given only where a subject has «pipeline.tensor_boundary»
        Errors       one of `refusals` that names what is wrong, on every rank, before anything is sent: unknown
                     schedule, m < 1, more stages in flight than micro-batches where the schedule needs them, a
                     batch that does not come out even where the plan states no rows, rows that are not m positive
                     numbers whose sum is the batch, wrong number of stages, a boundary tensor that tensor_group
                     does not divide
        """

    def split_backward(
        self, stage: nn.Module, inputs: Sequence[Tensor], output_grads: Sequence[Tensor]
    ) -> SplitGradients:
        """One stage, no ranks: run it, then backward to the inputs, then to the weights (added to `.grad`).

        output_grads   one for each output; that of an output without a gradient is ignored
        """
