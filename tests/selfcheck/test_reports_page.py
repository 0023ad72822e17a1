"""docs/reports.md says what is so: every claim, test and mutant it names exists, and «listed» is what the list says."""

import re
from pathlib import Path

import pytest

from parproof import registry
from parproof.mutants import catalogue
from parproof.plugin.nonconformances import listed
from parproof.torch_version import release

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reports.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if "#" in line and line[0] == "|"
]
EXPERIMENTS = ("PAR-NCCL-COLLECTIVE", "PAR-TENSOR-LAYOUT", "PAR-ZERO-STATE")
CLAIMS = {f"{e.id}/{claim.id}" for e in registry.load().experiments for claim in e.claims}
MUTANTS = {mutant.name: {f"{mutant.experiment}/{c}" for c in mutant.kills} for mutant in catalogue()}
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests" / "mechanisms").glob("test_*.py"))
rows = pytest.mark.parametrize(("report", "kind", "found_by", "state"), ROWS, ids=[row[0] for row in ROWS])


def reports(cell):
    """The reports of a row, as nonconformances.toml writes them."""
    return [report.strip() for report in cell.split(",")]


def claims(cell):
    """The claims of a row."""
    return re.findall(r"PAR-[A-Z-]+/C\d+", cell)


@rows
def test_a_row_names_claims_tests_and_mutants_that_exist(report, kind, found_by, state):
    """And a mutant by a claim of its row, by which it is killed."""
    assert all(re.fullmatch(r"[\w.-]+(/[\w.-]+)?( PR)?#\d+", one) for one in reports(report))
    if found_by.startswith("not covered: "):
        return
    assert set(claims(found_by)) <= CLAIMS
    assert claims(found_by)
    names = [name for name in re.findall(r"`(\w+)`", found_by) if name not in ("full_tensor", "item")]
    assert names
    for name in names:
        if name.startswith("test_"):
            assert f"def {name}(" in TESTS
        else:
            assert MUTANTS[name] & set(claims(found_by)), f"{name} is killed by {MUTANTS[name]}"


@rows
def test_a_row_is_called_listed_where_the_list_has_it(report, kind, found_by, state):
    """For torch 2.13, under a claim of the row; not otherwise."""
    entries = [
        entry for entry in listed() if entry.report in reports(report) and entry.claim.startswith(EXPERIMENTS)
    ]
    now = [
        e
        for e in entries
        if release(e.torch[0]) <= (2, 13) and (not e.torch[1] or release(e.torch[1]) > (2, 13))
    ]
    assert state.startswith("listed") == bool(now)
    assert {entry.claim for entry in entries} <= set(claims(found_by))


def test_every_listed_report_of_these_experiments_has_a_row():
    """A finding that the page leaves out would look like none."""
    known = {report for row in ROWS for report in reports(row[0])}
    found = {entry.report for entry in listed() if entry.claim.startswith(EXPERIMENTS)} - {"unreported"}
    assert found <= known
