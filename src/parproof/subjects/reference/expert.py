"""Expert parallelism from first principles: see expert_layer for the layer, expert_account for the figures."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from parproof.subjects.expert_protocol import Axes, Exchange, ExpertPlan
from parproof.subjects.reference.expert_account import Accounting
from parproof.subjects.reference.expert_layer import ExpertLayer


class ExpertParallel(Accounting):
    """See expert_protocol.ExpertParallel."""

    layer_type: type[ExpertLayer] = ExpertLayer

    def layer(self, plan: ExpertPlan, params: Mapping[str, Tensor], axes: Axes) -> ExpertLayer:
        """This rank's part of the layer."""
        return self.layer_type(plan, params, axes)

    def exchange(self, plan: ExpertPlan) -> Exchange:
        """Counts go to the whole mesh, so that all ranks refuse together."""
        return Exchange("all_gather.mesh", plan.dispatcher)
