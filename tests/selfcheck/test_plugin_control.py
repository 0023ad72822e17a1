"""The reference in the cpu lane: a part of each test as the control, all of it among the selfchecks or when it is asked for."""

import pytest

from parproof.plugin.options import DEFAULT_SUBJECTS

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(120)]

CASES = """
import pytest

pytestmark = pytest.mark.lanes("cpu", "cuda2"{control})

@pytest.mark.parametrize("number", range({first}, {many}))
def test_many(ranks, subject, number): assert number >= 0

@pytest.mark.parametrize("number", [0, 1])
def test_few(ranks, subject, number): assert number >= 0

@pytest.mark.parametrize("number", range(8))
def test_without_ranks(subject, number): assert number >= 0
"""


@pytest.fixture
def chosen(pytester):
    """The names of the cases that these arguments choose, of a module with so many cases, that start with `test_…`."""

    def chosen(start, *arguments, first=0, many=40, control=", control=4"):
        pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
        pytester.makepyfile(test_cases=CASES.format(first=first, many=many, control=control))
        run = pytester.inline_run("--collect-only", "-q", "-p", "no:cacheprovider", *arguments)
        items = [item for call in run.getcalls("pytest_collection_finish") for item in call.session.items]
        return [item.name for item in items if item.name.startswith(f"test_{start}")]

    return chosen


def test_the_lane_takes_a_part_of_the_references_cases_and_all_of_torchs(chosen):
    """About one in four, at least one of each test, and every case that starts no ranks."""
    lane = chosen("", "-m", "cpu")
    assert 4 <= sum(name.startswith("test_many[reference-") for name in lane) <= 16
    assert sum(name.startswith("test_few[reference-") for name in lane) >= 1
    assert sum(name.startswith("test_without_ranks[reference-") for name in lane) == 8
    assert sum(name.startswith(("test_many[torch_native-", "test_few[torch_native-")) for name in lane) == 42


def test_a_test_whose_cases_all_miss_the_choice_gives_its_first(chosen):
    """Of every test there is a control, however few cases it has."""
    for many in range(1, 6):
        assert chosen("many[reference-", "-m", "cpu", many=many), f"of {many} cases none is in the lane"


def test_lane_and_selfchecks_share_the_references_cases_without_rest(chosen):
    """A case in neither would run nowhere but in a plain run; one in both would run twice in CI."""
    lane, rest = (chosen("many[reference-cpu-", "-m", name) for name in ("cpu", "selfcheck"))
    assert sorted(lane + rest) == sorted(chosen("many[reference-cpu-"))
    assert len(lane + rest) == 40


@pytest.mark.parametrize("subjects", [[DEFAULT_SUBJECTS[0]], [*DEFAULT_SUBJECTS]], ids=len)
def test_a_subject_that_is_asked_for_is_judged_whole(chosen, subjects):
    """`--subject` with the reference is how somebody asks about the reference itself."""
    asked = [part for address in subjects for part in ("--subject", address)]
    assert len(chosen("many[reference-", "-m", "cpu", *asked)) == 40


def test_other_lanes_and_modules_that_ask_for_no_part_are_whole(chosen):
    """Two GPUs have the time; a stranger's tests are none of our business."""
    assert len(chosen("many[reference-cuda2-", "-m", "cuda2")) == 40
    assert len(chosen("many[reference-", "-m", "cpu", control="")) == 40


def test_a_new_case_moves_no_other(chosen):
    """Evidence of two commits stays comparable case by case."""
    before, after = (set(chosen("many[reference-", "-m", "cpu", first=first)) for first in (5, 0))
    assert before == {name for name in after if int(name.removesuffix("]").rsplit("-", 1)[1]) >= 5}
    assert before < after


def test_a_case_outside_the_lane_is_still_of_the_lane(pytester):
    """Its record says cpu, and so does what it needs of the machine."""
    from parproof.plugin.lanes import lane_of

    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile(test_cases=CASES.format(first=0, many=40, control=", control=4"))
    run = pytester.inline_run("--collect-only", "-q", "-m", "selfcheck")
    items = [item for call in run.getcalls("pytest_collection_finish") for item in call.session.items]
    assert items
    assert {lane_of(item) for item in items} == {"cpu"}


def test_the_run_says_what_it_leaves_out(pytester):
    """In one line, with the way to all of it; a run that leaves nothing out says nothing."""
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile(test_cases=CASES.format(first=0, many=40, control=", control=4"))
    lane, whole = (pytester.runpytest_inprocess("--collect-only", *chosen) for chosen in (["-m", "cpu"], []))
    lane.stdout.re_match_lines(
        [r"control: \d+ cases of the reference; \d+ more are selfchecks \(pytest, or --s.*"]
    )
    whole.stdout.no_fnmatch_line("control:*")


@pytest.mark.parametrize("wrong", ["control=0", "control='4'", "control=True", "controls=4"])
def test_a_part_that_is_none_is_refused_where_it_is_written(pytester, wrong):
    """A slip would run everything, or nothing, in silence."""
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile(test_cases=CASES.format(first=0, many=2, control=f", {wrong}"))
    result = pytester.runpytest_inprocess("--collect-only")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_many: lanes takes names and control=n, an int from 1; found {*}"])
