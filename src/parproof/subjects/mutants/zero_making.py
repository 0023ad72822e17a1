"""How a fault is planted: mixed into every layout of the reference that it can touch."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from parproof.subjects.reference.zero import Zero
from parproof.subjects.reference.zero_training import Training


class Fault:
    """Base of faults, first in line before the layout whose methods they override."""

    @classmethod
    def mechanism(cls) -> Zero:
        """The reference's mechanism with this fault in it."""
        return FaultyZero(cls)


class FaultyZero(Zero):
    """Builds layouts with a fault; layouts that are not of the kind it overrides stay right."""

    def __init__(self, fault: type[Fault]) -> None:
        self._fault = fault

    def layout(self, strategy: str) -> type[Training]:
        """The layout, with the fault before it in the order of resolution."""
        layout = super().layout(strategy)
        if not issubclass(layout, self._fault.__bases__[-1]):
            return layout
        return type(f"{self._fault.__name__}{layout.__name__}", (self._fault, layout), {})


def scale(gradients: Sequence[Tensor], norm: float, max_norm: float | None) -> float:
    """Clip by a norm that was computed wrongly; returns it."""
    if max_norm is not None:
        for gradient in gradients:
            gradient.mul_(min(1.0, max_norm / (norm + 1e-6)))
    return norm
