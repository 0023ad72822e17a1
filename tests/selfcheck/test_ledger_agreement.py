"""Ranks' ledgers are compared: no legal program is accused, every mismatch is named with its ranks and calls."""

import dataclasses
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parproof.ledger.agreement import disagreements
from parproof.ledger.rows import Row

pytestmark = pytest.mark.selfcheck

WORLD = 4
GROUPS = [("0", (0, 1, 2, 3)), ("1", (1, 3)), ("2", (0, 2)), ("2", (1, 3)), ("3", (3, 0, 1))]
ROOTED = ("broadcast", "reduce", "gather", "scatter")
BLOCK = 8


def row(op, group, **changes):
    """A call of 2 float32 elements; `changes` say the rest."""
    name, members = group
    reduce_op = "sum" if op in ("all_reduce", "reduce", "reduce_scatter") else None
    given_ = {
        "seq": 0,
        "op": op,
        "form": "single",
        "group": name,
        "members": members,
        "dtype": "float32",
        "shapes": ((2,),),
        "in_bytes": BLOCK,
        "out_bytes": BLOCK,
        "reduce_op": reduce_op,
        "where": f"{op}.py:1",
    }
    return Row(**(given_ | changes))


def collective(op, group, root, sizes):
    """rank → row of one legal call. `sizes[i][j]` bytes go from place i to place j where the call cuts."""
    _, members = group
    peer = members[root % len(members)] if op in ROOTED else None
    rows = {}
    for place, rank in enumerate(members):
        sent = tuple(sizes[place][other] for other in range(len(members)))
        back = tuple(sizes[other][place] for other in range(len(members)))
        changes = {"peer": peer}
        if op == "all_to_all":
            changes |= {"in_parts": sent, "out_parts": back, "in_bytes": sum(sent), "out_bytes": sum(back)}
            changes |= {"shapes": ((sum(sent) // 4,),)}
        elif op == "gather":
            parts = (BLOCK,) * len(members) if rank == peer else ()
            changes |= {"form": "list", "out_parts": parts, "out_bytes": sum(parts)}
        elif op == "scatter":
            parts = (BLOCK,) * len(members) if rank == peer else ()
            changes |= {"form": "list", "in_parts": parts, "in_bytes": sum(parts)}
            changes |= {"shapes": ((2,),) * max(1, len(parts))}
        elif op == "reduce_scatter":
            changes |= {"form": "list", "in_parts": (BLOCK,) * len(members), "shapes": ((2,),) * len(members)}
        elif op == "broadcast" and place % 2:
            changes |= {"shapes": ((2, 1),)}
        elif op == "all_gather" and place % 2:
            changes |= {"form": "list", "out_parts": (BLOCK,) * len(members), "shapes": ((1, 2),)}
        rows[rank] = row(op, group, **changes)
    return rows


def message(group, source, target, tag, num, from_any):
    """rank → row of one matched pair."""
    sent = {"in_bytes": 4 * num, "out_bytes": 0, "shapes": ((num,),), "tag": tag, "peer": target}
    back = {"in_bytes": 0, "out_bytes": 4 * num, "shapes": ((num,),), "tag": tag}
    back["peer"] = -1 if from_any else source
    return {source: row("send", group, **sent), target: row("recv", group, **back)}


@st.composite
def steps(draw):
    """One step of a legal program."""
    group = draw(st.sampled_from(GROUPS))
    size = len(group[1])
    if draw(st.booleans()):
        source, target = draw(st.permutations(group[1]))[:2]
        # Any-source receives have tags of their own here: mixed with others, which meets which is unknown.
        from_any = draw(st.booleans())
        tag = draw(st.integers(0, 2)) + 10 * from_any
        return message(group, source, target, tag, draw(st.integers(0, 5)), from_any)
    op = draw(
        st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", *ROOTED])
    )
    sizes = draw(
        st.lists(
            st.lists(st.sampled_from([0, 4, 8]), min_size=size, max_size=size), min_size=size, max_size=size
        )
    )
    return collective(op, group, draw(st.integers(0, 9)), sizes)


def ledgers_of(program):
    """Each rank's rows in program order; every rank has a ledger, an idle one too."""
    found = {rank: [] for rank in range(WORLD)}
    for step in program:
        for rank, one in step.items():
            found[rank].append(dataclasses.replace(one, seq=len(found[rank])))
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(steps(), max_size=12))
def test_no_legal_program_is_accused(program):
    """Several groups at once, disjoint and of one name, uneven splits, other forms and shapes, any source."""
    assert disagreements(ledgers_of(program)) == []


MUTATIONS = {
    "operation": lambda one: dataclasses.replace(
        one, op="all_reduce" if one.op != "all_reduce" else "barrier"
    ),
    "reduce op": lambda one: dataclasses.replace(one, reduce_op="max"),
    "root": lambda one: dataclasses.replace(one, peer=one.members[one.members.index(one.peer) - 1]),
    "dtype": lambda one: dataclasses.replace(one, dtype="int32"),
}


@settings(max_examples=60, deadline=None)
@given(st.lists(steps(), max_size=6), st.lists(steps(), max_size=6), st.data())
def test_one_changed_call_is_found_wherever_it_stands(before, after, data):
    """The first difference of the group is the changed call, by aspect; the text holds the rank and its call."""
    aspect = data.draw(st.sampled_from(sorted(MUTATIONS)))
    op = {
        "reduce op": "all_reduce",
        "root": "broadcast",
        "dtype": "all_to_all",
        "operation": "reduce_scatter",
    }[aspect]
    group = data.draw(st.sampled_from(GROUPS))
    step = collective(op, group, 0, [[4] * 4] * 4)
    rank = data.draw(st.sampled_from(group[1]))
    step[rank] = MUTATIONS[aspect](step[rank])
    found = disagreements(ledgers_of([*before, step, *after]))
    assert [(part.group, part.aspect) for part in found] == [(group[0], aspect)]
    assert f"rank {rank}: {step[rank].describe()}" in str(found[0])


@settings(max_examples=60, deadline=None)
@given(st.lists(steps(), min_size=1, max_size=8), st.data())
def test_a_call_that_one_rank_leaves_out_is_found(program, data):
    """Whatever it was: the rank is told to have made another call, or none."""
    index = data.draw(st.integers(0, len(program) - 1))
    rank = data.draw(st.sampled_from(sorted(program[index])))
    program[index] = {other: one for other, one in program[index].items() if other != rank}
    assert disagreements(ledgers_of(program)) != []


@pytest.mark.parametrize(
    ("op", "rank", "changes", "aspect"),
    [
        ("all_reduce", 1, {"shapes": ((3,),)}, "shape"),
        ("all_reduce", 1, {"shapes": ((2, 1),)}, "shape"),
        ("broadcast", 1, {"in_bytes": 12}, "shape"),
        ("all_gather", 0, {"in_bytes": 12}, "split"),
        ("all_gather", 1, {"out_parts": (8, 8, 12, 8)}, "split"),
        ("all_to_all", 1, {"in_parts": (4, 4, 8, 4)}, "split"),
        ("all_to_all", 2, {"out_parts": (0, 4, 4, 4)}, "split"),
        ("gather", 3, {"in_bytes": 12}, "split"),
        ("scatter", 3, {"out_bytes": 12}, "split"),
        ("reduce_scatter", 2, {"out_bytes": 4}, "split"),
        ("reduce_scatter", 2, {"form": "single", "in_parts": ()}, "form"),
    ],
)
def test_sizes_that_do_not_meet_are_named(op, rank, changes, aspect):
    """In bytes: what one hands in for another must be what the other expects."""
    step = collective(op, GROUPS[0], 0, [[4] * 4] * 4)
    step[rank] = dataclasses.replace(step[rank], **changes)
    assert [part.aspect for part in disagreements(ledgers_of([step]))] == [aspect]


def test_swapped_order_is_a_difference_of_operation():
    """Rank 2 reduces and gathers in the other order."""
    sizes = [[4] * 4] * 4
    ledgers = ledgers_of([collective(op, GROUPS[0], 0, sizes) for op in ("all_reduce", "all_gather")])
    ledgers[2].reverse()
    (part,) = disagreements(ledgers)
    assert (part.aspect, part.index) == ("operation", 0)
    assert part.calls[2] == "all_gather(float32[2]) at all_gather.py:1"
    assert part.calls[0] == "all_reduce(sum, float32[2]) at all_reduce.py:1"


@pytest.mark.parametrize(
    ("rank", "changes", "text"),
    [
        (0, {"dtype": "int32"}, "dtype differs.*rank 0: send\\(int32.*to 1.*rank 1: recv\\(float32.*from 0"),
        (1, {"out_bytes": 4}, "message size differs"),
        (1, {"tag": 5}, "send count differs.*rank 0: send.*rank 1: no matching recv"),
        (1, {"peer": 2}, "send count differs.*rank 0: send.*to 1"),
        (0, {"group": "9", "members": (0, 1)}, "send count differs at call 0 of group 9"),
    ],
    ids=["dtype", "size", "tag", "source", "group"],
)
def test_messages_that_do_not_meet_are_named(rank, changes, text):
    """Both ends are told, with what each asked for."""
    step = message(GROUPS[0], 0, 1, 0, 2, False)
    step[rank] = dataclasses.replace(step[rank], **changes)
    found = "; ".join(str(part) for part in disagreements(ledgers_of([step])))
    assert re.search(text, found), found


def test_an_any_source_receive_that_nobody_feeds_is_named():
    """One message, two receives from any rank."""
    step = message(GROUPS[0], 0, 1, 0, 2, True)
    ledgers = ledgers_of([step])
    ledgers[1] *= 2
    assert str(disagreements(ledgers)[0]).endswith("rank 1: 1 recv(s) from any rank that nobody sent to")


def test_a_rank_without_a_ledger_is_not_accused():
    """A dead rank has no report; the others are compared among themselves."""
    ledgers = ledgers_of([collective("all_reduce", GROUPS[0], 0, [[4] * 4] * 4)])
    del ledgers[3]
    assert disagreements(ledgers) == []


def events_of(work):
    """Calls, lines and returns of Python that it takes: the same on every machine, whatever else it does."""
    seen = []

    def trace(_, event, __):
        seen.append(event)
        return trace

    sys.settrace(trace)
    assert work() == []
    sys.settrace(None)
    return len(seen)


def test_many_groups_cost_no_more_than_one():
    """The same 2000 calls in one group and in 200: linear in rows, not rows times groups."""
    events = []
    for num_groups in (1, 200):
        sizes = [[4] * 4] * 4
        groups = [(str(i % num_groups), GROUPS[0][1]) for i in range(2000)]
        ledgers = ledgers_of([collective("all_reduce", group, 0, sizes) for group in groups])
        events.append(events_of(lambda ledgers=ledgers: disagreements(ledgers)))
    assert events[1] < 5 * events[0]
