"""What holds of some releases of torch only is told by the installed one, without importing it."""

import subprocess
import sys

import pytest

from parproof import torch_version
from parproof.plugin.nonconformances import _version_in

pytestmark = pytest.mark.selfcheck


@pytest.fixture
def on_torch(monkeypatch):
    """Pretend that a release is installed."""
    return lambda version: monkeypatch.setattr(
        torch_version, "installed", lambda: torch_version.release(version)
    )


@pytest.mark.parametrize(
    ("version", "numbers"),
    [
        ("2.13.0+cpu", (2, 13)),
        ("2.9.1", (2, 9)),
        ("2.14.0.dev20261101+cu130", (2, 14)),
        ("2.14.0a0", (2, 14)),
    ],
)
def test_a_build_or_a_nightly_counts_as_its_release(version, numbers):
    """2.9 is older than 2.13, whatever their letters say."""
    assert torch_version.release(version) == numbers


@pytest.mark.parametrize(("version", "older"), [("2.11.0", True), ("2.12.0+cu130", False), ("2.13.0", False)])
def test_an_older_release_lacks_and_says_since_when_not(version, older, on_torch):
    """A reader sees which release to install."""
    on_torch(version)
    found = torch_version.lacking_before("2.12", {"collectives.all_to_all.*": "gloo refuses"})
    assert found == ({"collectives.all_to_all.*": "before torch 2.12: gloo refuses"} if older else {})


@pytest.mark.parametrize(
    ("version", "expected"), [("2.10.1", False), ("2.11.0", True), ("2.13.1", True), ("2.14.0", False)]
)
def test_a_listed_defect_is_expected_from_its_first_release_until_it_is_mended(version, expected, on_torch):
    """The second bound is the first release without it."""
    on_torch(version)
    assert _version_in(("2.11", "2.14")) is expected


def test_torch_is_not_imported_to_know_its_version():
    """Subjects' tables are read at collection."""
    code = (
        "import sys, parproof.subjects.torch_native as n; from parproof import torch_version as v;"
        " v.before('2.12'); assert n.SUBJECT.lacks; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
