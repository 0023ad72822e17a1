"""The schemas accept what they should, and refuse each broken example at the place its name says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from parproof.evidence.schemas import violations

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "schemas" / "examples"
VALID = sorted(EXAMPLES.glob("valid/*.json"))
INVALID = sorted(EXAMPLES.glob("invalid/*.json"))


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_a_valid_example_is_accepted(path):
    """Of every schema at least one."""
    assert list(violations(path.name.split("--")[0], json.loads(path.read_text()))) == []


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_a_broken_example_is_refused_once_and_where_it_is_broken(path):
    """SCHEMA--PLACE--RULE.json: one violation, at the place or at what holds it."""
    schema, place, _ = path.stem.split("--")
    (violation,) = violations(schema, json.loads(path.read_text()))
    where = violation.split(": ", 1)[0].replace("/", ".")
    assert where == "(top)" or place.startswith(where), violation


def test_every_schema_has_examples_of_both_kinds():
    """A new schema needs them too."""
    schemas = {path.name.split(".")[0] for path in (ROOT / "schemas").glob("*.schema.json")}
    assert {path.name.split("--")[0] for path in VALID} == schemas
    assert {path.name.split("--")[0] for path in INVALID} == schemas


def test_the_examples_are_those_that_the_tool_writes():
    """They are never edited by hand."""
    tool = ROOT / "tools" / "make_schema_examples.py"
    done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "changed", [{"run_id": "0" * 32 + "\n"}, {"sequence": -(10**30)}, {"sequence": 10**400}]
)
def test_what_one_validator_lets_pass_the_other_finds(changed):
    """A line break behind a pattern's end; numbers that only one of them can hold."""
    record = json.loads((EXAMPLES / "valid" / "record--passed.json").read_text()) | changed
    found = list(violations("record", record))
    assert bool(found) == (changed != {"sequence": 10**400}), found
