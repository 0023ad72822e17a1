"""What goes in and comes out of a run: programs by name, arguments, results, output, skips."""

import functools
import os
import sys

import pytest

from parproof.errors import UsageError
from parproof.ranks.failure import RankFailure, RankSkip

pytestmark = pytest.mark.selfcheck


def identity(ctx, *values, **named):
    """What arrived in this rank."""
    return ctx.rank, values, named


def megabytes(ctx, count):
    """A tensor of this size."""
    import torch

    return torch.full((count * 250_000,), float(ctx.rank))


class Unreadable:
    """Pickles well; reading it back fails."""

    def __reduce__(self):
        return int, ("not a number",)


def returns_something(ctx, kind):
    """Rank 1 returns what cannot travel."""
    return {"function": lambda: 1, "unreadable": Unreadable()}[kind] if ctx.rank == 1 else 0


def puts_a_function_into_the_facts(ctx):
    """Rank 1 does."""
    if ctx.rank == 1:
        ctx.facts["callback"] = lambda: 1


def talks(ctx, num_lines):
    """Many lines."""
    for line in range(num_lines):
        print(f"rank {ctx.rank} line {line}")  # noqa: T201
    os.write(2, f"to stderr by {ctx.rank}\n".encode())


def closes_its_output(ctx):
    """Streams and descriptors."""
    sys.stdout.close()
    os.close(1)
    os.close(2)


def skips(ctx, ranks):
    """These ranks ask for a skip."""
    if ctx.rank in ranks:
        pytest.skip("needs a moon")


class Programs:
    """Functions of a class can be found by name, methods of an object cannot."""

    @staticmethod
    def static(ctx):
        """Found."""
        return ctx.rank

    @classmethod
    def of_class(cls, ctx):
        """Found."""
        return cls.__name__, ctx.rank

    def method(self, ctx):
        """Not found."""
        return ctx.rank


def test_arguments_arrive_and_results_come_back_in_rank_order(ranks):
    """Positional and by keyword."""
    run = ranks(3).run(identity, 1, "two", three=[3.0])
    assert run.results == [(rank, (1, "two"), {"three": [3.0]}) for rank in range(3)]


def test_a_result_of_100_megabytes_comes_back(ranks):
    """It travels through the connection, not through shared memory that could be left behind."""
    run = ranks(2).run(megabytes, 100)
    assert [(x.numel(), x[-1].item()) for x in run.results] == [(25_000_000, 0.0), (25_000_000, 1.0)]


@pytest.mark.parametrize(
    ("kind", "text"), [("function", "which cannot be pickled"), ("unreadable", "cannot be read back")]
)
def test_a_result_that_cannot_travel_is_a_failure_of_its_rank(kind, text, ranks):
    """The other ranks' results do not hide it."""
    with pytest.raises(RankFailure, match=f"^rank 1 of 2: .*{text}"):
        ranks(2).run(returns_something, kind)
    assert ranks(2).run(identity).results[1][0] == 1


def test_facts_that_cannot_travel_are_a_failure_of_their_rank(ranks):
    """They must not cost the report."""
    with pytest.raises(RankFailure, match=r"^rank 1 of 2: .*[Pp]ickle"):
        ranks(2).run(puts_a_function_into_the_facts)


def test_output_is_kept_by_rank_and_by_run(ranks):
    """The end of it when there is much; nothing of an earlier run."""
    run = ranks(2).run(talks, 100_000)
    assert run.reports[1].stdout.endswith("rank 1 line 99999\n")
    assert run.reports[0].stderr == "to stderr by 0\n"
    assert len(run.reports[1].stdout) < 100_000
    assert ranks(2).run(talks, 1).reports[1].stdout == "rank 1 line 0\n"


def test_a_rank_that_closes_its_output_has_it_again_in_the_next_run(ranks):
    """The same processes: num_starts does not move."""
    pool = ranks(2).pool
    ranks(2).run(closes_its_output)
    starts = pool.num_starts
    assert ranks(2).run(talks, 1).reports[0].stdout == "rank 0 line 0\n"
    assert pool.num_starts == starts


def test_a_skip_of_all_ranks_is_the_tests_skip_and_costs_no_restart(ranks):
    """RankSkip becomes pytest's skip in the plugin; see the stranger's tests."""
    ranks(2).run(identity)
    starts = ranks(2).pool.num_starts
    with pytest.raises(RankSkip, match="needs a moon"):
        ranks(2).run(skips, [0, 1])
    assert ranks(2).run(identity).results[0][0] == 0
    assert ranks(2).pool.num_starts == starts


def test_a_skip_of_some_ranks_is_a_failure(ranks):
    """Nobody else fails here: without the rule the run would pass."""
    with pytest.raises(RankFailure) as caught:
        ranks(3).run(skips, [1, 2])
    assert caught.value.kinds == {1: "skipped_alone", 2: "skipped_alone"}


@pytest.mark.parametrize("program", [Programs.static, Programs.of_class], ids=["static", "class"])
def test_a_function_of_a_class_is_found(program, ranks):
    """Anything that a dotted name leads to."""
    assert len(ranks(2).run(program).results) == 2


def _nested():
    def inner(ctx):
        return ctx.rank

    return inner


@pytest.mark.parametrize(
    ("program", "named"),
    [
        (lambda ctx: 0, "function <lambda>"),
        (_nested(), "function _nested.<locals>.inner"),
        (Programs().method, "method Programs.method"),
        (functools.partial(identity, 1), "functools.partial of function identity"),
        (functools.wraps(identity)(lambda ctx: 0), "function identity"),
    ],
    ids=["lambda", "nested", "method", "partial", "impostor"],
)
def test_a_program_without_a_name_is_refused_before_anything_starts(program, named, ranks):
    """The error says what to do instead."""
    with pytest.raises(UsageError, match=f"{named} cannot be found by name(.|\n)*move it to module level"):
        ranks(2).run(program)


def test_an_argument_that_cannot_travel_is_refused(ranks):
    """Before the ranks hear of it."""
    with pytest.raises(UsageError, match="an argument cannot be pickled"):
        ranks(2).run(identity, lambda: 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os\nif 'RANK' in os.environ: import nowhere_to_be_found", "ModuleNotFoundError"),
        ("def (", "SyntaxError"),
    ],
    ids=["import", "syntax"],
)
def test_a_module_that_breaks_only_in_the_ranks_is_named(text, words, ranks, tmp_path, monkeypatch):
    """Its own traceback, then the pool goes on."""
    module = tmp_path / "breaks.py"
    module.write_text("def program(ctx): return 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    import breaks

    module.write_text(text)
    with pytest.raises(RankFailure, match=rf"^rank \d of 2: {words}"):
        ranks(2).run(breaks.program)
    sys.modules.pop("breaks")
    assert ranks(2).run(identity).results[1][0] == 1


def test_a_changed_module_is_loaded_again(ranks, tmp_path, monkeypatch):
    """Warm ranks do not run yesterday's code."""
    module = tmp_path / "changes.py"
    monkeypatch.syspath_prepend(tmp_path)
    module.write_text("def program(ctx): return 'old'\n")
    import changes

    assert ranks(2).run(changes.program).results == ["old"] * 2
    module.write_text("def program(ctx): return 'newer'\n")
    assert ranks(2).run(changes.program).results == ["newer"] * 2
    sys.modules.pop("changes")


MAIN = """
from parproof.ranks import RankPool
from parproof.ranks.local import LocalLauncher

def program(ctx):
    return ctx.rank + 10

if __name__ == "__main__":
    pool = RankPool(2, LocalLauncher())
    print(pool.run(program).results)
    pool.close()
"""


def test_a_program_of_a_script_runs_without_pytest(pytester):
    """The pool is a library; __main__ is found under the name multiprocessing gives it."""
    script = pytester.makepyfile(script=MAIN)
    pytester.run(sys.executable, str(script)).stdout.fnmatch_lines(["[[]10, 11[]]"])
