"""The `subject` fixture: each test that asks for it runs once for every subject."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from parproof.errors import UsageError
from parproof.plugin.options import DEFAULT_SUBJECTS
from parproof.subjects.protocol import SubjectRef


def pytest_sessionstart(session: pytest.Session) -> None:
    """A wrong address is one error at the start, not one in every test."""
    for address in session.config.getoption("--subject"):
        try:
            SubjectRef(address).load()
        except UsageError as wrong:
            raise pytest.UsageError(str(wrong)) from wrong


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise `subject`, unless the mutants are what is wanted."""
    if metafunc.config.getoption("--parproof-mutants") or not uses_our_subject(metafunc):
        return
    addresses = list(dict.fromkeys(metafunc.config.getoption("--subject") or DEFAULT_SUBJECTS))
    metafunc.parametrize("subject", addresses, ids=distinct_ids(addresses), indirect=True)


def uses_our_subject(metafunc: pytest.Metafunc) -> bool:
    """Somebody else's `subject` (a fixture of their own, or a parameter) is none of our business."""
    definitions = metafunc._arg2fixturedefs.get("subject", ())
    ours = bool(definitions) and definitions[-1].func.__module__ == __name__
    direct = any(
        "subject" in (names.split(",") if isinstance(names, str) else names)
        for names in (marker.args[0] for marker in metafunc.definition.iter_markers("parametrize"))
    )
    return ours and not direct


def short_id(address: str) -> str:
    """How a subject is called in test ids: the last part of its module, or its own attribute."""
    module, _, attribute = address.partition(":")
    return module.rsplit(".", 1)[-1] if attribute == "SUBJECT" else attribute


def distinct_ids(addresses: Sequence[str]) -> list[str]:
    """The short ids, or for those that two subjects would share, the whole address with dots."""
    short = [short_id(address) for address in addresses]
    return [
        name if short.count(name) == 1 else address.replace(":", ".")
        for name, address in zip(short, addresses, strict=True)
    ]


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> SubjectRef:
    """The implementation under test, by address; errors in the address show here."""
    reference = SubjectRef(request.param)
    reference.load()
    return reference
