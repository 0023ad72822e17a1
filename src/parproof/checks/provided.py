"""Which cases a subject provides, by the capabilities that each takes. What it does not provide is skipped, with its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from parproof.subjects.protocol import SubjectRef

T = TypeVar("T")


def provided(
    subject: SubjectRef, cases: Sequence[T], needs: Callable[[T], Sequence[str]], aspect: str = ""
) -> list[T]:
    """The cases that the subject says it provides. Errors: Unsupported, with its reason, when none is left.

    needs    capabilities that a case takes
    aspect   a subject may provide a case and not this about it, as «.traffic»: it sends what the cost model says
    """
    there = [case for case in cases if missing(subject, needs(case)) is None]
    kept = [case for case in there if missing(subject, needs(case), aspect) is None]
    if not kept:
        lacking = missing(subject, needs(there[0]), aspect) if there else missing(subject, needs(cases[0]))
        subject.require(lacking or "")
    return kept


def missing(subject: SubjectRef, needs: Sequence[str], aspect: str = "") -> str | None:
    """The first of these capabilities that the subject does not provide."""
    loaded = subject.load()
    return next((need + aspect for need in needs if loaded.reason_against(need + aspect) is not None), None)
