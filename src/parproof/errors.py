"""Errors that say what was observed, what was expected, where, and what to do next."""

from __future__ import annotations


class ParproofError(Exception):
    """Base of every error this project raises on purpose.

    The four parts are kept apart, so that a report can show them without parsing the text.
    """

    def __init__(self, observed: str, *, expected: str = "", where: str = "", next_step: str = "") -> None:
        self.observed = observed
        self.expected = expected
        self.where = where
        self.next_step = next_step
        super().__init__(observed, expected, where, next_step)

    def __str__(self) -> str:
        text = f"{self.where}: {self.observed}" if self.where else self.observed
        if self.expected:
            text += f"; expected {self.expected}"
        if self.next_step:
            text += f"\n  next: {self.next_step}"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes: keyword-only arguments need their own recipe."""
        return _rebuild, (type(self), self.observed, self.expected, self.where, self.next_step)


def _rebuild(
    cls: type[ParproofError], observed: str, expected: str, where: str, next_step: str
) -> ParproofError:
    return cls(observed, expected=expected, where=where, next_step=next_step)


class UsageError(ParproofError):
    """The caller asked for something that cannot be: a wrong address, size, option or combination."""


class Unsupported(ParproofError):
    """A subject does not provide what a claim needs; becomes a skip with this text as its reason."""


class InvalidPlan(ParproofError, ValueError):
    """A parallel layout that cannot be: indivisible, non-positive, unknown."""
