"""Checks of the pipeline experiment: what cannot run is refused, by all, in time, and with the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from parproof.ranks.run import Run


def assert_refused(run: Run, numbers: Sequence[str]) -> None:
    """On every rank, naming `numbers`, and before anything was sent."""
    for rank, result in enumerate(run.results):
        text = result["refused"] or "accepted"
        if not all(number in text for number in numbers):
            raise AssertionError(
                f"{run.where(rank)}: {text}; expected a refusal that names {', '.join(numbers)}"
            )
        _assert_silent(run, rank)


def all_refused(run: Run, numbers: Sequence[str]) -> bool:
    """Did the ranks refuse? All of them or none, and those that do as `assert_refused` wants it."""
    refused = [result["refused"] for result in run.results]
    for rank, text in enumerate(refused):
        if bool(text) != any(refused):
            raise AssertionError(f"{run.where(rank)}: goes on where others refuse: {refused}")
    if any(refused):
        assert_refused(run, numbers)
    return any(refused)


def _assert_silent(run: Run, rank: int) -> None:
    if run.ledgers[rank]:
        raise AssertionError(f"{run.where(rank)}: sent something before it refused")
