"""Faults in how PAR-ZERO-STATE's mechanism refuses: by accident, or without saying what is wrong."""

from __future__ import annotations

from torch import nn

from parproof.errors import InvalidPlan, UsageError
from parproof.subjects.mutants.zero_making import Fault
from parproof.subjects.reference.zero import Zero
from parproof.subjects.reference.zero_training import Training
from parproof.subjects.zero_protocol import StatePlan


class PlanFallsOver(Zero):
    """All that the refusal says is in the text, by chance."""

    @classmethod
    def mechanism(cls) -> Zero:
        return cls()

    def checked(self, plan: StatePlan, module: nn.Module) -> StatePlan:
        try:
            return super().checked(plan, module)
        except InvalidPlan as refusal:
            raise self.answer(refusal) from refusal

    def answer(self, refusal: InvalidPlan) -> Exception:
        return KeyError(str(refusal))


class PrintsThePlan(PlanFallsOver):
    def answer(self, refusal: InvalidPlan) -> Exception:
        return InvalidPlan("this cannot be", where=refusal.where)


class NamesNoParameter(Fault, Training):
    def load(self, directory: str) -> None:
        try:
            super().load(directory)
        except UsageError as refusal:
            raise UsageError("a parameter does not fit", where=refusal.where) from refusal
