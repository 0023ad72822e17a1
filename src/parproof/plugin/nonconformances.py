"""Known upstream defects: expected to fail, by claim, subject, case and version, with the public report.

They are findings, not failures hidden in skips: a listed case that starts to pass fails the run (strict).
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources

import pytest

from parproof import torch_version
from parproof.errors import UsageError

_LISTED = pytest.StashKey[bool]()


@dataclass(frozen=True)
class Nonconformance:
    """One listed defect. It applies to a test of the claim whose id contains every word of `case`.

    torch      versions it was seen in, as «lowest, first version without it» (the second may be empty)
    symptom    what a user sees
    says       pattern that the failure's text must contain; a failure of another kind is not the listed one
    """

    claim: str
    subject: str
    case: tuple[str, ...]
    torch: tuple[str, str]
    report: str
    symptom: str
    says: str


@functools.cache
def listed() -> tuple[Nonconformance, ...]:
    """All entries of nonconformances.toml."""
    raw = tomllib.loads(resources.files("parproof").joinpath("nonconformances.toml").read_text())
    found = []
    for entry in raw.get("nonconformance", []):
        try:
            case, versions = tuple(entry.pop("case")), tuple(entry.pop("torch"))
            found.append(Nonconformance(case=case, torch=versions, **entry))
        except (KeyError, TypeError) as wrong:
            raise UsageError(f"{wrong}", where="nonconformances.toml", next_step="see its header") from wrong
    return tuple(found)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the listed cases as expected failures."""
    if config.getoption("--parproof-mutants"):
        return
    for item in items:
        claims, words = _judged_by(item)
        for entry in listed() if claims else ():
            if entry.claim in claims and _applies(entry, words):
                reason = f"expected nonconformance {entry.report}: {entry.symptom}"
                the_listed = pytest.RaisesExc(AssertionError, match=entry.says)
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True, raises=the_listed))
                item.stash[_LISTED] = True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """An expected failure is told by its reason: its traceback with sources, which nobody sees, took longer than the test."""
    options = item.config.option
    if options.runxfail or getattr(options, "xfail_tb", False) or not item.stash.get(_LISTED, False):
        return
    if call.excinfo is not None and isinstance(call.excinfo.value, AssertionError):
        call.excinfo.traceback = call.excinfo.traceback[-1:]


def _judged_by(item: pytest.Item) -> tuple[set[str], set[str]]:
    """(claims, words of the id and the name) of a test of an experiment; nothing for any other."""
    experiment = item.get_closest_marker("experiment")
    callspec = getattr(item, "callspec", None)
    if experiment is None or callspec is None:
        return set(), set()
    claims = {f"{experiment.args[0]}/{c}" for marker in item.iter_markers("claim") for c in marker.args}
    return claims, set(callspec.id.split("-")) | {item.originalname}  # type: ignore[attr-defined]


def _applies(entry: Nonconformance, words: set[str]) -> bool:
    return entry.subject in words and all(word in words for word in entry.case) and _version_in(entry.torch)


def _version_in(bounds: tuple[str, str]) -> bool:
    low, high = bounds
    return not torch_version.before(low) and (not high or torch_version.before(high))
