"""Pipeline schedules: closed forms against golden numbers, orders against closed forms, and the checker itself."""

import re
from fractions import Fraction

import pytest

from parproof.cost.pipeline import (
    Event,
    bubble_ratio,
    efficiency,
    fill_drain_makespan_s,
    forward_slots,
    one_f_one_b_period_s,
    peak_live,
    placement,
    steady_period_s,
    training_slots,
)
from parproof.cost.pipeline_orders import orders
from parproof.cost.pipeline_timeline import (
    peak_live_per_rank,
    peak_live_per_stage,
    problems,
    timeline,
)
from parproof.errors import InvalidPlan

pytestmark = pytest.mark.selfcheck
SIZES = [(2, 4), (3, 6), (4, 8), (4, 4), (8, 32), (3, 4), (3, 8), (1, 3)]
by_size = pytest.mark.parametrize(("p", "m"), SIZES)
DEPTH = [("fill_drain", 1), ("one_f_one_b", 1), ("interleaved", 2), ("breadth_first", 2), ("zero_bubble", 1)]


@pytest.mark.parametrize(
    ("p", "m", "expected"),
    [(8, 32, Fraction(7, 39)), (3, 4, Fraction(1, 3)), (4, 4, Fraction(3, 7)), (4, 16, Fraction(3, 19))],
)
def test_the_bubble_of_the_golden_cases(p, m, expected):
    """(p − 1)/(m + p − 1)."""
    assert bubble_ratio(p, m) == expected


@by_size
def test_idle_and_busy_share_add_up_to_the_whole(p, m):
    """(p − 1)/(m + p − 1) and m/(m + p − 1) are two sides of one count of slots."""
    assert bubble_ratio(p, m) + efficiency(p, m) == 1
    assert bubble_ratio(p, m) == 1 - Fraction(p * m, p * forward_slots(p, m))
    assert bubble_ratio(p, 2 * m) <= bubble_ratio(p, m)


def test_the_forward_timeline_of_the_golden_case():
    """p = 3, m = 5: 7 steps, 15 slots, stage s works on micro-batch i in slot s + i."""
    made = timeline([[Event("F", s, i) for i in range(5)] for s in range(3)], [0, 1, 2])
    assert made.makespan_s == forward_slots(3, 5) == 7
    assert len(made.start_s) == 15
    assert all(start == e.stage + e.micro for e, start in made.start_s.items())


@pytest.mark.parametrize(("p", "m"), [(0, 4), (3, 0), (-1, 4)])
def test_counts_below_one_are_refused(p, m):
    """By every entry point."""
    for call in (bubble_ratio, efficiency, training_slots, forward_slots):
        with pytest.raises(InvalidPlan, match="expected at least 1"):
            call(p, m)
    with pytest.raises(InvalidPlan, match="expected at least 1"):
        orders("one_f_one_b", p, m)


@by_size
@pytest.mark.parametrize(("schedule", "v"), DEPTH)
def test_every_order_does_everything_once_and_can_run(schedule, v, p, m):
    """24 unique events for p = 3, m = 4 without splitting; more where there are more stages or parts."""
    made = orders(schedule, p, m, v)
    assert problems(made, placement(schedule, p, v), m) == []
    kinds = 3 if schedule == "zero_bubble" else 2
    assert len({event for order in made for event in order}) == kinds * p * v * m


@by_size
@pytest.mark.parametrize(("schedule", "v"), DEPTH)
def test_the_makespan_equals_the_closed_form(schedule, v, p, m):
    """2(vm + p − 1) slots where backward is one event; 3m + p − 1 where it is two: the bubble pays for one hop."""
    made = timeline(orders(schedule, p, m, v), placement(schedule, p, v))
    if schedule == "zero_bubble":
        assert made.makespan_s == 3 * m + p - 1
    else:
        assert made.makespan_s == 2 * (v * m + p - 1)
        assert made.bubble_ratio == pytest.approx(float(bubble_ratio(p, m, v)), abs=1e-12)
    if v == 1 and schedule != "zero_bubble":
        assert made.makespan_s == training_slots(p, m)


@by_size
@pytest.mark.parametrize("schedule", ["fill_drain", "one_f_one_b", "zero_bubble"])
def test_the_peak_of_live_activations_equals_the_closed_form(schedule, p, m):
    """m, min(m, p − s), min(m, p)."""
    found = peak_live_per_stage(orders(schedule, p, m), p)
    assert found == [peak_live(schedule, p, m, s) for s in range(p)]


def test_1f1b_is_not_greedy():
    """Backward first without a limit has the same makespan and holds nearly twice as much at the start."""
    greedy = orders("interleaved", 4, 8, 1)
    assert [peak_live("one_f_one_b", 4, 8, s) for s in range(4)] == [4, 3, 2, 1]
    assert (
        peak_live_per_rank(greedy)
        == [peak_live("greedy_backward", 4, 8, s) for s in range(4)]
        == [7, 5, 3, 1]
    )
    assert timeline(greedy, [0, 1, 2, 3]).makespan_s == training_slots(4, 8)
    assert (peak_live("greedy_backward", 8, 32, 0), peak_live("one_f_one_b", 8, 32, 0)) == (15, 8)


FORWARD_S, BACKWARD_S = (1.0, 3.0, 2.0), (2.0, 5.0, 3.0)


def unequal(event):
    """Stage 1 is the slowest, in both directions."""
    return (FORWARD_S if event.kind == "F" else BACKWARD_S)[event.stage]


def test_the_slowest_stage_sets_the_pace():
    """Fill-drain by its closed form; 1F1B by its period, once it is steady."""
    made = timeline(orders("fill_drain", 3, 6), [0, 1, 2], unequal, transfer_s=0.5)
    assert made.makespan_s == fill_drain_makespan_s(FORWARD_S, BACKWARD_S, 6, 0.5)
    longer, shorter = (timeline(orders("one_f_one_b", 3, m), [0, 1, 2], unequal).makespan_s for m in (21, 20))
    assert longer - shorter == steady_period_s(FORWARD_S, BACKWARD_S) == 8.0


@pytest.mark.parametrize("p", [2, 3, 4, 8])
def test_transfer_time_slows_1f1b_in_every_period(p):
    """What is in flight is limited, so a transfer cannot hide: f + b + 2c(p − 1)/p, where fill-drain keeps f + b."""
    m, c = 10 * p, 0.25
    for schedule, period in (("one_f_one_b", one_f_one_b_period_s(2.0, c, p)), ("fill_drain", 2.0)):
        spans = [
            timeline(orders(schedule, p, k), list(range(p)), transfer_s=c).makespan_s for k in (m, m + p)
        ]
        assert (spans[1] - spans[0]) / p == pytest.approx(period, abs=1e-12)


def test_a_sender_that_waits_for_its_transfer_is_slower():
    """Without overlap every hop is paid by the rank itself."""
    runs = [
        timeline(orders("one_f_one_b", 4, 8), [0, 1, 2, 3], transfer_s=0.5, blocks_sender=blocks).makespan_s
        for blocks in (False, True)
    ]
    assert runs[0] < runs[1]


def test_two_stages_of_one_rank_need_no_transfer():
    """At the turn of a V the tensor is there already."""
    there_and_back = [Event("F", s, 0) for s in (0, 3)], [Event("F", s, 0) for s in (1, 2)]
    assert timeline(there_and_back, placement("zero_bubble_v", 2, 2), transfer_s=1.0).makespan_s == 6.0


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (lambda o: o[0].pop(), "done 0 times"),
        (lambda o: o[1].append(Event("F", 1, 0)), r"F\(1,0\) done 2 times"),
        (lambda o: o[0].append(Event("F", 0, 9)), r"F\(0,9\) done 1 times, expected 0"),
        (lambda o: o[1].insert(0, o[1].pop(2)), r"B\(1,0\) before F|I\(1,0\) before F"),
        (lambda o: o[0].append(o[1].pop()), "belongs to rank 1"),
        (lambda o: o[0].sort(key=lambda e: (e.micro, e.kind == "B")), "deadlock"),
        (lambda o: o[1].sort(key=lambda e: e.kind == "B" and -1), "before F"),
    ],
    ids=["missing", "twice", "unknown", "swapped", "foreign", "serial_first_rank", "backward_first"],
)
def test_the_checker_finds_what_is_wrong(edit, text):
    """Each fault by its own words, also one rank that goes on micro-batch by micro-batch while others do not."""
    made = orders("one_f_one_b", 3, 4)
    edit(made)
    found = "; ".join(problems(made, [0, 1, 2], 4))
    assert re.search(text, found), found


def test_a_deadlock_names_where_every_rank_waits():
    """Rank 0 wants micro-batch 0 back before it gives micro-batch 1; rank 1 wants both first."""
    crossed = [
        [Event("F", 0, 0), Event("B", 0, 0), Event("F", 0, 1), Event("B", 0, 1)],
        [Event("F", 1, 0), Event("F", 1, 1), Event("B", 1, 0), Event("B", 1, 1)],
    ]
    assert problems(crossed, [0, 1], 2) == ["deadlock: every rank waits, at B(0,0), F(1,1)"]
    with pytest.raises(InvalidPlan, match=r"ranks wait at B\(0,0\), F\(1,1\)"):
        timeline(crossed, [0, 1])


@pytest.mark.parametrize(
    ("schedule", "p", "m", "v"),
    [("interleaved", 4, 9, 2), ("zero_bubble", 4, 9, 2), ("one_f_one_b", 2, 4, 2), ("sideways", 2, 4, 1)],
)
def test_an_order_that_does_not_exist_is_refused(schedule, p, m, v):
    """Rounds that do not come out even, too many stages, unknown names."""
    with pytest.raises(InvalidPlan, match="expected"):
        orders(schedule, p, m, v)
