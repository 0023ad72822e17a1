"""The `subject` fixture: each test that asks for it runs once for every subject."""

from __future__ import annotations

import pytest

from parproof.plugin.options import DEFAULT_SUBJECTS
from parproof.subjects.protocol import SubjectRef


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise `subject`, unless the mutants are what is wanted."""
    if "subject" not in metafunc.fixturenames or metafunc.config.getoption("--parproof-mutants"):
        return
    addresses = metafunc.config.getoption("--subject") or DEFAULT_SUBJECTS
    metafunc.parametrize("subject", list(addresses), ids=[short_id(a) for a in addresses], indirect=True)


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
