"""The one factor in which two sides may differ."""

from __future__ import annotations

from dataclasses import dataclass

from parproof.errors import UsageError
from parproof.evidence.compare.words import shown

_WHOLE = ("source", "subject", "strategy", "backend", "launcher", "packages", "python", "variables")
_PARTS = ("packages.", "python.", "variables.", "parameters.")
_MAY_VARY = (
    "source, subject, strategy, backend, launcher, packages[.NAME], python[.NAME], variables[.NAME],"
    " parameters.NAME or machine.kernel"
)


@dataclass(frozen=True)
class Varies:
    """The declared factor; `first` and `second` choose records of one value on either side, None: whatever is there."""

    factor: str
    first: str | None = None
    second: str | None = None

    def __post_init__(self) -> None:
        where = "--varies"
        if self.factor not in (*_WHOLE, "machine.kernel") and not self.factor.startswith(_PARTS):
            raise UsageError(
                f"factor {shown(self.factor)}",
                expected=f"one of {_MAY_VARY}",
                where=where,
                next_step="workload, model and hardware are held equal: another one is another baseline",
            )
        if (self.first is None) != (self.second is None) or (self.first and not self.of_records):
            raise UsageError(
                f"values {shown(self.first)} and {shown(self.second)} of factor {shown(self.factor)}",
                expected="both --from and --to, and --varies subject, strategy or parameters.NAME",
                where=where,
            )

    @property
    def of_records(self) -> bool:
        """Is it a factor of each record, and not of the run?"""
        return self.factor in ("subject", "strategy") or self.factor.startswith("parameters.")

    @property
    def changes_everything(self) -> bool:
        """Is every operation expected to take another time? Then their scatter is no noise of two runs."""
        return self.of_records or self.factor in ("backend", "launcher")

    def allows(self, name: str) -> bool:
        """May this field differ?"""
        also = {
            "subject": ("parameters.subject",),
            "strategy": ("parameters.strategy", "workload.strategy"),
            "parameters.strategy": ("strategy", "workload.strategy"),
        }
        return name == self.factor or name.startswith(f"{self.factor}.") or name in also.get(self.factor, ())
