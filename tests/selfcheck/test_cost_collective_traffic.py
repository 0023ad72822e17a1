"""Closed forms of collective traffic: totals, bounds and the cases one can do by hand."""

import pytest

from parproof.cost.collective_form_traffic import functional_traffic, in_one_call
from parproof.cost.collective_traffic import Place, collective_traffic, even_parts, num_children
from parproof.errors import UsageError

pytestmark = pytest.mark.selfcheck
WORLDS = pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8])


def sent(op, algorithm, place, given, taken=None):
    """(messages, bytes) that one rank sends, one byte an element."""
    lines = collective_traffic(op, algorithm, place, given, taken or given, element_bytes=1)
    return next(((t.calls, t.in_bytes) for t in lines if t.op == "send"), (0, 0))


def received(op, algorithm, place, given, taken=None):
    """(messages, bytes) that one rank receives."""
    lines = collective_traffic(op, algorithm, place, given, taken or given, element_bytes=1)
    return next(((t.calls, t.out_bytes) for t in lines if t.op == "recv"), (0, 0))


@WORLDS
def test_a_ring_all_reduce_sends_the_lower_bound(p):
    """2S(p − 1)/p bytes in 2(p − 1) messages, when p divides S."""
    assert sent("all_reduce", "ring", Place(p, 0), [p * 12]) == (2 * (p - 1), 2 * 12 * (p - 1))


@WORLDS
@pytest.mark.parametrize("count", [1, 7, 10_003])
def test_two_rings_send_the_same_in_total_and_not_rank_by_rank(p, count):
    """A rank of the one sends what its right neighbour of the other sends: the parts are shifted by one."""
    own = [sent("all_reduce", "ring", Place(p, me), [count]) for me in range(p)]
    following = [sent("all_reduce", "ring_next", Place(p, me), [count]) for me in range(p)]
    assert following == own[1:] + own[:1]


@WORLDS
def test_uneven_rings_send_in_total_what_they_receive(p):
    """A rank may send more than it receives; the group may not."""
    ranks = [Place(p, me) for me in range(p)]
    for op, given in (("all_reduce", [4 * p + 3]), ("reduce_scatter", even_parts(17, p))):
        out = sum(sent(op, "ring", place, given)[1] for place in ranks)
        assert out == sum(received(op, "ring", place, given)[1] for place in ranks)
        assert out == (p - 1) * sum(given) * (2 if op == "all_reduce" else 1)


@WORLDS
def test_a_tree_reaches_everybody_once(p):
    """p − 1 messages in all, whoever is the root."""
    for root in range(p):
        assert sum(num_children(Place(p, me, root)) for me in range(p)) == p - 1
    assert [num_children(Place(8, me)) for me in range(8)] == [3, 2, 1, 1, 0, 0, 0, 0]


def test_empty_blocks_are_no_message():
    """A rank that gives nothing to another does not write to it."""
    assert sent("all_to_all", "direct", Place(3, 0), [5, 0, 7]) == (1, 7)


def test_the_payload_of_a_call_counts_what_is_handed_in_and_back():
    """gather: only the root gets something; scatter: only the root gives."""
    for me, expected in ((0, (4, 12)), (1, (4, 0))):
        (line,) = collective_traffic("gather", "single_call", Place(3, me), [1] * 3, [1] * 3, element_bytes=4)
        assert (line.in_bytes, line.out_bytes) == expected


def test_the_agreement_is_one_message_each_way():
    """Declared apart from the algorithm, and absent in a group of one."""
    lines = collective_traffic(
        "broadcast", "binomial_tree", Place(2, 0), [8], [8], element_bytes=4, agreement="neighbour_header"
    )
    assert [(t.op, t.calls, t.in_bytes + t.out_bytes) for t in lines] == [("send", 2, 96), ("recv", 1, 64)]


def test_an_unknown_algorithm_is_refused():
    """A subject cannot invent a prediction for itself."""
    with pytest.raises(UsageError, match="magic"):
        collective_traffic("all_reduce", "magic", Place(2, 0), [8], [8], element_bytes=4)


RINGS = {"all_reduce": "ring", "all_gather": "ring", "reduce_scatter": "ring"}


@pytest.mark.parametrize(
    ("op", "reduce_op", "behind"),
    [
        ("all_reduce", "sum", 2 * 8),  # two rings, one part each, both ways
        ("all_reduce", "max", 2 * 8 + 2 * 8),  # and the same for who holds it
        ("all_reduce", "product", 2 * 8 + 16),  # and all inputs
        ("reduce_scatter", "sum", 8),
        ("reduce_scatter", "min", 8 + 8 + 2 * 8),  # results, and who holds them
        ("reduce_scatter", "product", 8 + 16),
    ],
)
def test_the_gradient_of_what_is_not_linear_sends_more(op, reduce_op, behind):
    """Two ranks, 16 elements of one byte in all: bytes that a rank sends on the way back."""
    blocks = ([16], [16]) if op == "all_reduce" else ([8, 8], [8, 8])
    lines = functional_traffic(
        op, RINGS, Place(2, 0), [blocks], element_bytes=1, gradient=True, reduce_op=reduce_op, phase="x"
    )
    assert sum(t.in_bytes for t in lines if t.op == "send" and t.phase == "x/backward") == behind


@pytest.mark.parametrize(("op", "brings"), [("all_to_all", 2 + 3 + 4), ("reduce_scatter", 3 * 3)])
def test_a_scatter_from_each_rank_in_turn(op, brings):
    """Three calls; this rank hands in its parts once. What comes: others' parts for it; of a sum, as many of its own size."""
    (line,) = collective_traffic(op, "scatters", Place(3, 1), [5, 3, 4], [2, 3, 4], element_bytes=2)
    assert (line.op, line.calls, line.in_bytes, line.out_bytes) == ("scatter", 3, 2 * 12, 2 * brings)


@pytest.mark.parametrize(
    ("ways", "behind"),
    [({}, ["reduce_scatter"]), ({"all_gather.gradient": "scatters"}, ["scatter"])],
)
def test_a_gradient_goes_the_way_that_is_stated_for_it(ways, behind):
    """Otherwise by the operation behind it, as that is carried."""
    ways = {"all_gather": "single_call", "reduce_scatter": "single_call", **ways}
    lines = functional_traffic(
        "all_gather", ways, Place(2, 0), [([4, 4], [4, 4])], element_bytes=1, gradient=True, phase="x"
    )
    assert [line.op for line in lines if line.phase == "x/backward"] == behind


def test_gradients_as_those_of_sums_take_nothing_besides():
    """Who reduces gradients as he reduces values says so."""
    ways = {"all_reduce": "single_call", "nonlinear": "as_sums"}
    lines = functional_traffic(
        "all_reduce",
        ways,
        Place(2, 0),
        [([4], [4])],
        element_bytes=1,
        gradient=True,
        reduce_op="max",
        phase="x",
    )
    assert [line.op for line in lines] == ["all_reduce"] * 2


def test_tensors_in_one_call_are_one_call():
    """The bytes of all of them; one by one they are as many calls as there are tensors."""
    ways = {"all_reduce": "single_call", "coalesced": "one_call"}
    ones = [
        line
        for count in (3, 5)
        for line in collective_traffic(
            "all_reduce", "single_call", Place(2, 0), [count], [count], element_bytes=4
        )
    ]
    for coalesced, calls in (("one_call", 1), ("one_by_one", 2)):
        found = in_one_call(ones, ways | {"coalesced": coalesced}, "all_reduce")
        assert (sum(t.calls for t in found), sum(t.in_bytes for t in found)) == (calls, 32)
