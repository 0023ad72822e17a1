"""`run_once`: one run, judged by several tests of a module, and evidence of each of them."""

import pytest

from parproof.ranks.failure import RankFailure

pytestmark = pytest.mark.selfcheck


def counts(ctx, add=0):
    """How often this process has run it."""
    counts.calls = getattr(counts, "calls", 0) + 1
    return counts.calls + add


def strides(ctx, x):
    """Of what was given."""
    return x.stride()


def fails_the_first_time(ctx, path):
    """And works then."""
    if ctx.rank == 0 and not path.exists():
        path.touch()
        raise ValueError("not yet")


def test_the_same_program_with_the_same_arguments_runs_once(ranks):
    """The second one is given the first one's run, and it counts among the runs of the test."""
    first = ranks(2).run_once(counts)
    assert ranks(2).run_once(counts) is first
    assert ranks.runs == [first, first]


def test_a_later_test_of_the_module_is_given_the_same_run(ranks):
    """Of the test above: its ranks would count further."""
    again = ranks(2).run_once(counts)
    assert ranks.runs == [again]
    assert ranks(2).run(counts).results[0] == again.results[0] + 1


@pytest.mark.parametrize(
    ("world", "options", "add"),
    [(3, {}, 0), (2, {"debug_detail": True}, 0), (2, {"ranks_per_host": 1}, 0), (2, {}, 5)],
)
def test_anything_that_differs_makes_a_run_of_its_own(world, options, add, ranks):
    """World, options, layout of hosts, arguments."""
    plain = ranks(2).run_once(counts)
    other = ranks(world, **options).run_once(counts, add)
    assert other is not plain
    assert other.world_size == world


def test_equal_elements_are_not_equal_arguments(ranks):
    """Of a tensor and of a view with the same elements: a program may treat them differently."""
    import torch

    view = torch.arange(6.0).reshape(2, 3).t()
    assert ranks(2).run_once(strides, view).results[0] == (1, 3)
    assert ranks(2).run_once(strides, view.contiguous()).results[0] == (2, 1)


def test_a_run_that_failed_is_not_kept(ranks, tmp_path):
    """The next test has a right to its own failure, or success."""
    with pytest.raises(RankFailure, match="not yet"):
        ranks(2).run_once(fails_the_first_time, tmp_path / "was_here")
    assert ranks(2).run_once(fails_the_first_time, tmp_path / "was_here").results == [None, None]


def test_new_processes_mean_new_runs(ranks):
    """Whoever asks for a fresh pool does not get an answer of the old one."""
    before = ranks(2).run_once(counts)
    assert ranks(2, fresh=True).run_once(counts) is not before


def test_runs_are_dropped_with_their_module(pytester):
    """A session of many modules does not keep the tensors of all of them."""
    program = "def program(ctx): return 1\n"
    test = "def test_it(ranks, request):\n    ranks(2).run_once(program)\n    assert len(ranks.kept) == 1\n"
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile(
        test_one=program + test,
        test_two=program.replace("program", "other") + test.replace("program", "other"),
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)
