"""Attention over a split sequence: output and gradients of every rank against the oracle at the rank's positions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parproof.checks.bounds import cancellation_bound
from parproof.checks.values import assert_within
from parproof.ranks.run import Run
from parproof.subjects.context_protocol import ContextPlan

if TYPE_CHECKING:
    from torch import Tensor

Answer = tuple[Mapping[str, "Tensor"], Mapping[str, "Tensor"], float]
"""Results, the same sums over absolute values, and the condition of the scores: see docs/numerics.md."""


def assert_attention(
    run: Run,
    results: Sequence[Mapping[str, Any]],
    plan: ContextPlan,
    answer: Answer,
    eps: float,
    group_size: int,
) -> float:
    """Returns the worst error as a share of its bound."""
    __tracebackhide__ = True
    worst = 0.0
    exact, absolute, condition = answer
    for name, (rank, found) in itertools.product(exact, enumerate(results)):
        what = {"out": "output"}.get(name, name)
        assert found[name] is not None, f"{run.where(rank)}: {what}: no gradient arrived"
        at = found["positions"]
        bound = cancellation_bound(
            eps,
            absolute_norm=float(absolute[name][:, :, at].norm()),
            ranks=group_size,
            length=plan.sequence_length,
            condition=condition,
        )
        expected = exact[name][:, :, at]
        error = assert_within(found[name], expected, bound=bound, where=run.where(rank), what=what)
        worst = max(worst, error / bound)
    return worst
