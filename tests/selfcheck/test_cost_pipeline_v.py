"""V-shaped schedules: known facts of the published ones against the model's orders, and where these facts end."""

import pytest

from parproof.cost.pipeline import Event, peak_live, placement, rank_live_limit
from parproof.cost.pipeline_orders import orders
from parproof.cost.pipeline_timeline import peak_live_per_rank, problems, slots, timeline
from parproof.cost.pipeline_v import dual_pipe_v_idle_s, units
from parproof.errors import InvalidPlan
from parproof.subjects.pipeline_protocol import PipelinePlan
from parproof.subjects.reference.pipeline_order import Scheduler

pytestmark = pytest.mark.selfcheck
SIZES = [(1, 2), (2, 4), (2, 9), (3, 6), (4, 8), (4, 17), (8, 32)]
by_size = pytest.mark.parametrize(("p", "m"), SIZES)
by_schedule = pytest.mark.parametrize("schedule", ["zero_bubble_v", "dual_pipe_v"])


def played(schedule, p, m, duration_s=slots, overlapped_s=None):
    """The model's timeline; overlapping pairs in one piece where they have a time."""
    pairs = [unit for order in units(schedule, p, m) for unit in order if len(unit) == 2]
    joined = {} if overlapped_s is None else dict.fromkeys(pairs, overlapped_s)
    return timeline(orders(schedule, p, m, 2), placement(schedule, p, 2), duration_s, overlapped=joined)


def lasting(forward_s, input_s, weight_s):
    """Duration of each kind of event."""
    times = {"F": forward_s, "I": input_s, "W": weight_s, "B": input_s + weight_s}
    return lambda event: times[event.kind]


@by_size
@by_schedule
def test_every_v_does_everything_once_and_can_run(schedule, p, m):
    """2p stages, there and back."""
    assert problems(orders(schedule, p, m, 2), placement(schedule, p, 2), m) == []


@by_size
def test_zero_bubble_v_has_no_bubble_but_the_way_to_each_rank(p, m):
    """F = I = W: rank s starts at slot s and then works 6m slots without a break, so no order is shorter."""
    made = played("zero_bubble_v", p, m)
    assert made.makespan_s == 6 * m + p - 1
    assert made.idle_by_rank_s == [p - 1] * p
    for s, order in enumerate(orders("zero_bubble_v", p, m, 2)):
        assert made.start_s[order[0]] == s
        assert made.end_s[order[-1]] == s + 6 * m


@pytest.mark.parametrize("p", [2, 3, 4, 6])
def test_a_zero_bubble_v_that_cannot_be_filled_is_no_longer_than_a_full_one(p):
    """Of two orders neither is always the shorter one, so C5 asks for no more than this."""
    lengths = []
    for m in range(1, 2 * p - 1):
        plan = PipelinePlan("zero_bubble_v", m, 2)
        greedy = [[Event(*work) for work in order] for order in Scheduler(plan, p).orders()]
        placed = placement("zero_bubble_v", p, 2)
        lengths.append((played("zero_bubble_v", p, m).makespan_s, timeline(greedy, placed, slots).makespan_s))
        assert 6 * m + p - 1 <= min(lengths[-1]) <= max(lengths[-1]) <= 13 * p - 7
    assert played("zero_bubble_v", p, 2 * p - 1).makespan_s == 13 * p - 7
    assert p < 3 or {model < greedy for model, greedy in lengths} == {True, False}


@pytest.mark.parametrize("times", [(1, 2, 1), (2, 1, 1), (1, 1, 2)], ids=["input", "forward", "weight"])
def test_zero_bubble_v_has_a_bubble_where_times_differ(times):
    """Any of the three may be the longer one: more than its work and the way to the last rank."""
    made = played("zero_bubble_v", 4, 12, lasting(*times))
    assert made.makespan_s > 2 * sum(times) * 12 + 3 * times[0]


@by_size
def test_zero_bubble_v_holds_on_every_rank_what_1f1b_holds_on_the_first(p, m):
    """p micro-batches of two stages each; 1F1B has it on rank 0 alone, and less on each rank behind."""
    assert peak_live_per_rank(orders("zero_bubble_v", p, m, 2)) == [2 * p] * p
    assert 2 * p == 2 * peak_live("one_f_one_b", p, m, 0) == rank_live_limit("zero_bubble_v", p, m)


@pytest.mark.parametrize(("p", "m"), [(2, 1), (2, 2), (3, 3), (4, 1), (4, 5), (8, 9)])
def test_zero_bubble_v_runs_with_few_micro_batches_too(p, m):
    """Below 2p − 1 the ways there and back do not meet: it runs, within its memory, and waits longer."""
    made = orders("zero_bubble_v", p, m, 2)
    assert problems(made, placement("zero_bubble_v", p, 2), m) == []
    assert max(peak_live_per_rank(made)) <= rank_live_limit("zero_bubble_v", p, m)
    assert played("zero_bubble_v", p, m).makespan_s >= 6 * m + p - 1


@by_size
def test_dual_pipe_v_holds_one_more(p, m):
    """A forward starts before the backward it overlaps with has released anything: 2p + 1, PP + 1 of PP stages."""
    assert peak_live_per_rank(orders("dual_pipe_v", p, m, 2)) == [2 * p + 1] * p
    assert rank_live_limit("dual_pipe_v", p, m) == min(2 * p + 1, 2 * m)


@by_size
@pytest.mark.parametrize("times", [(1, 1, 1), (2, 2, 1), (3, 3, 2)], ids=str)
def test_dual_pipe_v_idles_as_deepseek_says_where_overlap_gains_nothing(times, p, m):
    """(PP/2 − 1)(F&B + B − 3W) on every rank, for F = I and W no longer."""
    made = played("dual_pipe_v", p, m, lasting(*times), sum(times))
    assert made.idle_by_rank_s == [dual_pipe_v_idle_s(p, sum(times), times[1] + times[2], times[2])] * p


@by_size
@pytest.mark.parametrize(("times", "both_s"), [((1, 1, 1), 2.5), ((2, 2, 1), 3), ((3, 3, 2), 5)], ids=str)
def test_dual_pipe_v_idles_as_deepseek_says_on_the_rank_that_waits_longest(times, both_s, p, m):
    """Where overlap gains time, ranks near the input gain a little more."""
    made = played("dual_pipe_v", p, m, lasting(*times), both_s)
    expected = dual_pipe_v_idle_s(p, both_s, times[1] + times[2], times[2])
    assert max(made.idle_by_rank_s) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("times", "sign"), [((2, 1, 1), 1), ((1, 1, 2), 1), ((1, 2, 1), -1)], ids=["forward", "weight", "input"]
)
def test_dual_pipe_v_idles_otherwise_where_times_differ(times, sign):
    """More than the formula where forwards or weights take longer, less where the way back does."""
    made = played("dual_pipe_v", 4, 12, lasting(*times), sum(times))
    expected = dual_pipe_v_idle_s(4, sum(times), times[1] + times[2], times[2])
    assert (max(made.idle_by_rank_s) - expected) * sign > 0


@by_size
def test_overlapping_pairs_are_a_forward_and_a_whole_backward_of_the_other_stage(p, m):
    """All backwards but those of the start and the end overlap: 2m − 2p + s + 1 … of rank s, less one on the last."""
    for s, order in enumerate(units("dual_pipe_v", p, m)):
        pairs = [unit for unit in order if len(unit) == 2]
        assert len(pairs) == 2 * (m - 2 * p + s + 1) + p - 1 - s - (s == p - 1)
        assert all((f.kind, b.kind) == ("F", "B") and f.stage + b.stage == 2 * p - 1 for f, b in pairs)


@pytest.mark.parametrize(
    ("schedule", "p", "m", "v"),
    [
        ("dual_pipe_v", 2, 3, 2),
        ("dual_pipe_v", 2, 4, 1),
        ("zero_bubble_v", 2, 4, 3),
        ("zero_bubble_v", 2, 0, 2),
    ],
)
def test_a_v_that_cannot_be_is_refused(schedule, p, m, v):
    """Too few micro-batches for every rank to have two, or another number of stages."""
    with pytest.raises(InvalidPlan, match="expected"):
        orders(schedule, p, m, v)
    if v == 2 and m:
        with pytest.raises(InvalidPlan, match="at least 4"):
            units(schedule, p, m)


def test_only_a_v_has_units():
    """Other schedules have no overlapping pairs."""
    with pytest.raises(InvalidPlan, match="'fill_drain' has no V"):
        units("fill_drain", 2, 4)
