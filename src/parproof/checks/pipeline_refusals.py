"""Checks of the pipeline experiment: what cannot run is refused, by all, in time, and with the numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from parproof.ranks.run import Run


def assert_refused(run: Run, types: Sequence[str], named: Sequence[str]) -> None:
    """On every rank, with an error that is a refusal, naming all of `named`, and before anything was sent.

    types   of errors that are the subject's refusals, by name; any other is an accident, whatever it says
    named   regular expressions, each to be found as whole words or numbers: the 0 of 10 names no 0
    """
    __tracebackhide__ = True
    for rank, result in enumerate(run.results):
        if result["refused"] is None:
            raise AssertionError(f"{run.where(rank)}: accepted; expected a refusal that names {_list(named)}")
        _assert_no_accident(result, types, run.where(rank))
        if not all(
            re.search(f"(?<![0-9A-Za-z])(?:{what})(?![0-9A-Za-z])", result["refused"]) for what in named
        ):
            raise AssertionError(
                f"{run.where(rank)}: {result['refused']}; expected a refusal that names {_list(named)}"
            )
        if run.ledgers[rank]:
            raise AssertionError(f"{run.where(rank)}: sent something before it refused")


def all_refused(run: Run, types: Sequence[str], named: Sequence[str]) -> bool:
    """Did the ranks refuse? All of them or none, and those that do as `assert_refused` wants it."""
    __tracebackhide__ = True
    refused = [result["refused"] for result in run.results]
    for rank, text in enumerate(refused):
        if bool(text) != any(refused):
            raise AssertionError(f"{run.where(rank)}: goes on where others refuse: {refused}")
    if any(refused):
        assert_refused(run, types, named)
    return any(refused)


def _assert_no_accident(result: dict[str, object], types: Sequence[str], where: str) -> None:
    """By the type itself: most accidents of torch are RuntimeErrors of some kind, and an IndexError is a LookupError.

    Of InvalidPlan a kind will do, since nobody raises one by accident.
    """
    kinds = result["kinds"]
    assert isinstance(kinds, list)
    if kinds[0] not in types and not ("InvalidPlan" in types and "InvalidPlan" in kinds):
        raise AssertionError(
            f"{where}: no refusal but an accident: {result['refused']}; expected {' or '.join(types)}"
        )


def _list(named: Sequence[str]) -> str:
    return ", ".join(named)
