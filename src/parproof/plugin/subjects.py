"""The `subject` fixture: each test that asks for it runs once for every subject."""

from __future__ import annotations

import pytest

from parproof.plugin.options import DEFAULT_SUBJECTS
from parproof.subjects.protocol import SubjectRef


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise `subject`, unless the mutants are what is wanted."""
    if metafunc.config.getoption("--parproof-mutants") or not uses_our_subject(metafunc):
        return
    addresses = metafunc.config.getoption("--subject") or DEFAULT_SUBJECTS
    metafunc.parametrize("subject", list(addresses), ids=[short_id(a) for a in addresses], indirect=True)


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


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> SubjectRef:
    """The implementation under test, by address; errors in the address show here."""
    reference = SubjectRef(request.param)
    reference.load()
    return reference
