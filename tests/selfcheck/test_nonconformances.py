"""Known upstream defects stay visible: expected to fail, strict, by claim, subject, case and version."""

import re

import pytest

from parproof.plugin import nonconformances
from parproof.plugin.nonconformances import Nonconformance, listed

pytestmark = pytest.mark.selfcheck

NATIVE = "parproof.subjects.torch_native:SUBJECT"
CASES = """
import pytest
pytestmark = pytest.mark.experiment("PAR-NCCL-COLLECTIVE")

@pytest.mark.claim("C1")
@pytest.mark.parametrize("op", ["broadcast", "reduce"])
def test_value(op, subject):
    assert {condition}, "rank 1 of 2: differs"
"""


def entry(**changes):
    """An entry that applies to the broadcast case above."""
    given = {
        "claim": "PAR-NCCL-COLLECTIVE/C1",
        "subject": "torch_native",
        "case": ("broadcast",),
        "torch": ("2.0", ""),
        "report": "pytorch#1",
        "symptom": "wrong on strided views",
        "says": "rank 1 of 2: differs",
    }
    return Nonconformance(**(given | changes))


@pytest.fixture
def run_with(pytester, monkeypatch):
    """Run the cases above in this process with a list of our own."""

    def run(condition, *entries):
        monkeypatch.setattr(nonconformances, "listed", lambda: entries)
        pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
        pytester.makepyfile(CASES.format(condition=condition))
        return pytester.runpytest_inprocess("-rxX", "--subject", NATIVE, "-p", "no:cacheprovider")

    return run


def test_a_listed_defect_is_an_expected_failure_that_names_its_report(run_with):
    """The other case of the same claim passes as ever."""
    result = run_with("op == 'reduce'", entry())
    result.assert_outcomes(passed=1, xfailed=1)
    result.stdout.fnmatch_lines(["*pytorch#1: wrong on strided views*"])


def test_a_failure_of_another_kind_is_not_the_listed_one(run_with):
    """Behind an entry that takes any failure, a new defect would hide."""
    run_with("op == 'reduce'", entry(says="rank 1 of 2: was killed")).assert_outcomes(passed=1, failed=1)


def test_every_listed_text_is_specific():
    """A pattern finds neither an empty text nor the words that every failure of ranks has."""
    for one in listed():
        assert not re.search(one.says, ""), one
        assert not re.search(one.says, "rank 0 of 2: RuntimeError: something else differs"), one


def test_a_listed_case_may_be_skipped_for_its_own_reason(run_with):
    """Its subject may lack what the case needs."""
    run_with("pytest.skip('not provided')", entry()).assert_outcomes(skipped=2)


def test_a_listed_defect_that_is_mended_fails_the_run(run_with):
    """Otherwise the list would outlive the defect."""
    run_with("True", entry()).assert_outcomes(passed=1, failed=1)


def test_somebody_elses_subject_is_left_alone(pytester):
    """The name of our fixture is a common word."""
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile(
        """
        import pytest
        @pytest.fixture
        def subject(): return 3
        def test_fixture(subject): assert subject == 3
        @pytest.mark.parametrize("subject", [4])
        def test_parameter(subject): assert subject == 4
        """
    )
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_an_error_other_than_the_finding_is_not_expected(run_with):
    """A crash in the case is a failure, listed or not."""
    run_with("1 / 0", entry()).assert_outcomes(failed=2)


@pytest.mark.parametrize(
    "changes",
    [
        {"claim": "PAR-NCCL-COLLECTIVE/C2"},
        {"subject": "reference"},
        {"case": ("broad",)},
        {"torch": ("99.0", "")},
    ],
    ids=["claim", "subject", "part_of_a_word", "version"],
)
def test_an_entry_applies_only_where_all_of_it_matches(run_with, changes):
    """A too wide entry would hide failures it was not written for."""
    run_with("op == 'reduce'", entry(**changes)).assert_outcomes(passed=1, failed=1)


@pytest.mark.parametrize("found", listed(), ids=lambda e: f"{e.claim}-{e.report}-{'-'.join(e.case)}")
def test_every_entry_names_a_public_report_or_says_there_is_none(found):
    """A number somebody can look up, and a symptom they can recognise."""
    assert re.fullmatch(r"[\w.-]+(/[\w.-]+)?( PR)?#\d+|unreported", found.report)
    assert len(found.symptom) > 15
