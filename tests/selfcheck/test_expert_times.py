"""Seconds of an expert layer's exchanges: dealt out to their calls, and missed with a reason, never in silence."""

import pytest

from parproof import programs, workloads
from parproof.checks import expert_cases as cases
from parproof.subjects.protocol import SubjectRef
from parproof.workloads.expert_meshes import Mesh

pytestmark = pytest.mark.selfcheck


def profile(num_exchanges, name="gloo:all_to_all"):
    """Exchanges of 1, 2, 3, … µs, and what else a profile shows."""
    return [("aten::mm", 0.0, 5.0)] + [(name, 10.0 * i, 10.0 * i + i + 1) for i in range(num_exchanges)]


def test_the_last_two_exchanges_of_each_forward_pass_are_its_own():
    """Two calls of two cases with three exchanges each: the first is of the counts."""
    times = programs.expert_times
    made = [times.Called(), times.Called()]
    times.give_exchanges(made, profile(12), calls=2)
    assert [[round(s * 1e6) for s in called.dispatch_s] for called in made] == [[2, 8], [5, 11]]
    assert [[round(s * 1e6) for s in called.combine_s] for called in made] == [[3, 9], [6, 12]]
    assert [called.not_timed for called in made] == ["", ""]


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (profile(12, "gloo:alltoall_base"), "0 events 'gloo:all_to_all' in 4 .*: gloo:alltoall_base"),
        (profile(11), "11 events 'gloo:all_to_all' in 4 forward passes.* none"),
        (profile(4), "4 events 'gloo:all_to_all' in 4 forward passes"),
    ],
    ids=["renamed", "one_is_missing", "one_each"],
)
def test_exchanges_that_the_profiler_does_not_show_leave_a_reason(events, said):
    """torch names its events as it likes; a record without these seconds says what there was instead."""
    import re

    times = programs.expert_times
    made = [times.Called(), times.Called()]
    times.give_exchanges(made, events, calls=2)
    assert not any(called.dispatch_s or called.combine_s for called in made)
    assert all(re.search(said, called.not_timed) for called in made), made[0].not_timed


def test_this_torch_names_the_exchanges_as_the_program_expects(ranks):
    """The reference exchanges by all_to_all: that no second of it is missing shows that the name still holds."""
    mesh = Mesh(ep=2)
    pairs = cases.balanced_and_skewed(mesh)
    reference = SubjectRef("parproof.subjects.reference:SUBJECT")
    program = programs.expert_times.call_after_call
    done = ranks(2, ledger=False).run(program, reference, mesh, [case for case, _ in pairs], 2)
    for called in (called for of_rank in done.results for called in of_rank):
        assert called.not_timed == ""
        assert len(called.dispatch_s) == len(called.combine_s) == 2


def test_a_case_says_what_it_asks_of_experts_and_how_unevenly():
    """Sixteen tokens on each of four ranks, top 2 of 8: the page's helper, and skew as its runner reports it."""
    balanced, skewed = (cases.work(*pair) for pair in cases.balanced_and_skewed(Mesh(ep=4)))
    for found in (balanced, skewed):
        assert (found["dense_units"], found["routes"], found["sparsity"]) == (
            64 * workloads.expert.HIDDEN,
            128,
            0.25,
        )
        assert found["uniform_cross_ratio"] == 0.75
        assert sum(found["rows_received"]) == 128
    assert balanced["expert_load_skew"] == 0.0
    assert skewed["expert_load_skew"] > 1.0
