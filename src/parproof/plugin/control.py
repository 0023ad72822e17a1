"""The reference is the control of a lane: the same check on the same machine, on code whose every step can be read.

A fault of torch shows in torch's cases; the control shows that the check could pass. One case in a few does that, so
where a module is marked `lanes(…, control=n)`, the cpu lane runs one in n of the reference's cases of each test. The others
show that the checks themselves are right: they are selfchecks, and plain `pytest` runs them. `--subject` takes all.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence

import pytest

from parproof.plugin.lanes import parameters_of
from parproof.plugin.options import DEFAULT_SUBJECTS

REFERENCE = DEFAULT_SUBJECTS[0]
_OUTSIDE: pytest.StashKey[list[pytest.Item]] = pytest.StashKey()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Move the reference's other cases from the lane to the selfchecks, before `-m` chooses."""
    if config.getoption("--subject") or config.getoption("--parproof-mutants"):
        return
    by_test: dict[tuple[pytest.Item | pytest.Collector | None, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if _is_control(item):
            by_test[item.parent, getattr(item, "originalname", item.name)].append(item)
    outside = [item for cases in by_test.values() for item in _left_out(cases)]
    for item in outside:
        item.own_markers = [mark for mark in item.own_markers if mark.name != "cpu"]
        item.add_marker(pytest.mark.selfcheck)
    config.stash[_OUTSIDE] = outside


def pytest_report_collectionfinish(config: pytest.Config, items: Sequence[pytest.Item]) -> list[str]:
    """Say how much of the reference this run leaves to others."""
    chosen = set(items)
    left = sum(item not in chosen for item in config.stash.get(_OUTSIDE, []))
    kept = sum(_is_control(item) for item in items)
    if not left or not kept:
        return []
    return [
        f"control: {kept} cases of the reference; {left} more are selfchecks (pytest, or --subject {REFERENCE})"
    ]


def _is_control(item: pytest.Item) -> bool:
    """Whether an item is a case of the reference on the ranks of the cpu lane, in a module that asks for a part of them."""
    given = parameters_of(item)
    return given.get("subject") == REFERENCE and given.get("lane") == "cpu" and _one_in(item) > 1


def _one_in(item: pytest.Item) -> int:
    """How many of the reference's cases there are to one in the lane."""
    marker = item.get_closest_marker("lanes")
    return marker.kwargs.get("control", 1) if marker else 1


def _left_out(cases: list[pytest.Item]) -> list[pytest.Item]:
    """All cases of one test but those of the control: chosen by name, so that a new case moves no other; at least one."""
    share = _one_in(cases[0])
    chosen = [case for case in cases if zlib.crc32(case.name.encode()) % share == 0] or cases[:1]
    return [case for case in cases if case not in chosen]
