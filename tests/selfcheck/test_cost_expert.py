"""Formulas of the expert layer against numbers worked out by hand; its workload and oracle against themselves."""

from dataclasses import replace

import pytest

from parproof import oracles, workloads
from parproof.cost.expert import (
    Sizes,
    capacity,
    dense_and_sparse,
    dispatch_parts,
    load_skew,
    max_over_mean,
    overflow,
    rows_by_rank,
    traffic,
    uniform_cross_ratio,
)
from parproof.cost.traffic import Traffic
from parproof.errors import InvalidPlan
from parproof.subjects.expert_protocol import ExpertPlan
from parproof.workloads.expert_meshes import MESHES, Mesh
from parproof.workloads.expert_routes import PAGE

pytestmark = pytest.mark.selfcheck

# Two ranks, an expert each. Rank 0 keeps one route and sends two; rank 1 sends nothing and keeps three.
PAIR = Sizes(
    kept=[[1, 2], [0, 3]],
    owners=[0, 1],
    lengths=[3, 3],
    places=3,
    me=0,
    width=4,
    hidden=6,
    top_k=1,
    element_bytes=8,
    ep=2,
    dp=1,
    tp=1,
)


@pytest.mark.parametrize(
    ("loads", "factor", "places", "lost", "ratio"),
    [
        ((2, 2, 2), "1.0", 2, 0, 1.0),
        ((3, 1), "1.0", 2, 1, 1.5),
        ((10, 1), "1.0", 6, 4, 20 / 11),
        ((0, 0), "1.0", 0, 0, 0.0),
        ((250, 250, 0, 0, 0, 0, 0, 0, 0, 0), "1.1", 55, 390, 5.0),
        ((3, 0), "0.5", 1, 2, 2.0),
    ],
)
def test_capacity_overflow_and_load_ratio(loads, factor, places, lost, ratio):
    """The page's triples; nothing routed; a factor that binary rounding would raise."""
    assert capacity(sum(loads), len(loads), factor) == places
    assert overflow(loads, places) == lost
    assert max_over_mean(loads) == ratio


def test_dense_and_sparse_work_of_a_batch():
    """256 tokens of width 1024, top 2 of 4: every token asks half of the experts."""
    found = dense_and_sparse(256, 1024, 2, 4)
    assert (found.dense_units, found.routes, found.sparsity) == (262_144, 512, 0.5)
    assert dense_and_sparse(0, 8, 1, 1).routes == 0
    assert dense_and_sparse(3, 4, 2, 3).routes == sum(PAGE["balanced"].expected["loads"])


@pytest.mark.parametrize("sizes", [(-1, 8, 1, 2), (1, 0, 1, 2), (1, 8, 0, 2), (1, 8, 3, 2)])
def test_a_batch_that_cannot_be_is_refused(sizes):
    """A token cannot ask more experts than there are."""
    with pytest.raises(InvalidPlan, match=f"top {sizes[2]} of {sizes[3]}"):
        dense_and_sparse(*sizes)


@pytest.mark.parametrize(("loads", "skew"), [((384, 128), 1.0), ((2, 2), 0.0), ((1, 3), 1.0), ((0, 0), 0.0)])
def test_skew_of_loads_as_runners_report_it(loads, skew):
    """Two ranks of 256 tokens, three quarters to rank 0; requests by count on the replicas of the other page."""
    assert load_skew(loads) == skew


@pytest.mark.parametrize(("num_ranks", "share"), [(1, 0.0), (2, 0.5), (8, 7 / 8)])
def test_share_of_uniform_routes_that_leave(num_ranks, share):
    """Two ranks keep half at home; over eight rails an eighth stays on its own."""
    assert uniform_cross_ratio(num_ranks) == share
    with pytest.raises(InvalidPlan, match="0 ranks"):
        uniform_cross_ratio(0)


@pytest.mark.parametrize("mesh", MESHES, ids=Mesh.name)
def test_the_page_combines_a_quarter_of_1_and_three_quarters_of_3(mesh):
    """2.5 in every column of every token, by the oracle; C1 compares the subject with it."""
    case = workloads.expert.page_combine(mesh, "all_to_all")
    answer = oracles.expert.layer(case.params, case.shards, case.plan)
    assert {float(v) for out in answer.outputs for v in out.flatten()} == {2.5}
    assert {tuple(w) for weights in answer.weights for w in weights.tolist()} == {(0.75, 0.25)}


def test_rows_leave_by_row_sums_and_arrive_by_column_sums():
    """A placement that is not in order: expert 0 on rank 1."""
    matrix = rows_by_rank([[1, 2, 3], [4, 5, 6]], [1, 0, 1])
    assert matrix == [[2, 4], [5, 10]]
    assert [sum(row) for row in matrix] == [6, 15]


@pytest.mark.parametrize(
    ("dispatcher", "me", "sent", "received"),
    [
        ("all_to_all", 0, [32, 64], [32, 0]),
        ("all_to_all", 1, [0, 96], [64, 96]),
        ("padded", 0, [96, 96], [96, 96]),
    ],
)
def test_parts_of_a_dispatch(dispatcher, me, sent, received):
    """32 bytes a row; padded rows travel whether a token is in them or not."""
    assert dispatch_parts(replace(PAIR, me=me), dispatcher) == (sent, received)


def test_a_step_by_all_to_all():
    """There and back in both directions, two numbers for the loss, the router's gradient."""
    assert traffic(PAIR, counts="all_gather.mesh", dispatcher="all_to_all") == [
        Traffic("all_gather", 1, 40, 80, 2, "forward"),
        Traffic("all_to_all", 2, 128, 128, 2, "forward"),
        Traffic("all_to_all", 2, 128, 128, 2, "backward"),
        Traffic("all_reduce", 1, 16, 16, 2, "loss"),
        Traffic("all_reduce", 1, 64, 64, 2, "finish"),
    ]


def test_a_step_by_all_gather():
    """Ids, tokens and weights out; answers back as sums; gradients of tokens and weights as sums."""
    assert traffic(PAIR, counts="all_gather.ep", dispatcher="all_gather")[:4] == [
        Traffic("all_gather", 4, 24 + 144, 48 + 288, 2, "forward"),
        Traffic("reduce_scatter", 1, 192, 96, 2, "forward"),
        Traffic("all_gather", 1, 96, 192, 2, "backward"),
        Traffic("reduce_scatter", 2, 240, 120, 2, "backward"),
    ]


def test_counts_may_go_to_the_owners_only():
    """Each rank learns what it will get, and nothing about the others: E counts out, own experts · ep back."""
    lines = traffic(replace(PAIR, lengths=[3, 3]), counts="all_to_all.ep", dispatcher="all_to_all")
    assert lines[0] == Traffic("all_to_all", 3, 16 + 128, 16 + 128, 2, "forward")


def test_frozen_inputs_need_no_gradient_of_the_dispatch():
    """One way back instead of two; by all-gather only the weights' gradient."""
    frozen = replace(PAIR, input_gradient=False)
    assert Traffic("all_to_all", 1, 96, 32, 2, "backward") in traffic(
        frozen, counts="all_gather.ep", dispatcher="all_to_all"
    )
    assert Traffic("reduce_scatter", 1, 48, 24, 2, "backward") in traffic(
        frozen, counts="all_gather.ep", dispatcher="all_gather"
    )


def test_further_axes_add_sums_over_them():
    """tp: rows at the experts, both ways. dp: the rank's share of the experts. One rank alone: nothing."""
    over_tp = traffic(replace(PAIR, tp=2), counts="all_gather.mesh", dispatcher="all_to_all")
    assert Traffic("all_reduce", 1, 32, 32, 2, "forward") in over_tp
    over_dp = traffic(replace(PAIR, dp=2), counts="all_gather.ep", dispatcher="all_to_all")
    assert Traffic("all_reduce", 1, 384, 384, 2, "finish") in over_dp
    assert Traffic("all_reduce", 1, 64, 64, 4, "finish") in over_dp
    alone = replace(PAIR, kept=[[1, 2]], owners=[0, 0], lengths=[3], ep=1)
    assert traffic(alone, counts="all_gather.mesh", dispatcher="all_to_all") == []


@pytest.mark.parametrize("mesh", MESHES, ids=Mesh.name)
def test_the_integer_cases_are_exact_in_any_order(mesh):
    """The same sums over absolute values stay below 2**48, and every mean divides by a power of two."""
    for case in workloads.expert.cases(mesh, "padded"):
        honest = oracles.expert.layer(case.params, case.shards, case.plan)
        num_valid = sum(int(s.valid.sum()) for s in case.shards)
        assert num_valid & (num_valid - 1) == 0, case.name
        absolute = [
            replace(s, x=s.x.abs(), upstream=s.upstream.abs() * num_valid, replayed=ids)
            for s, ids in zip(case.shards, honest.ids, strict=True)
        ]
        params = {name: p.abs() for name, p in case.params.items()}
        largest = oracles.expert.layer(params, absolute, replace(case.plan, capacity_factor=None))
        tensors = [*largest.outputs, *largest.input_gradients, *largest.gradients.values()]
        assert max(float(t.max()) for t in tensors if t.numel()) < 2**48, case.name


@pytest.mark.parametrize("gate", ["linear", "softmax", "renormalised"])
def test_the_oracle_gradients_are_those_of_its_loss(gate):
    """Written out by hand, so checked against differences of the loss: central, and exact to 1e-6 of the largest."""
    plan = ExpertPlan(4, 2, gate=gate, capacity_factor=1.0)
    case = workloads.expert.case("small", Mesh(), "scattered", plan, tokens=(4,), padding=(1,))
    (shard,) = case.shards
    shard = replace(shard, replayed=oracles.expert.layer(case.params, case.shards, plan).ids[0])
    answer = oracles.expert.layer(case.params, [shard], plan)
    gradients = {**answer.gradients, "x": answer.input_gradients[0]}
    for name, gradient in gradients.items():
        tensor = shard.x if name == "x" else case.params[name]
        for index in [
            (0,) * tensor.dim(),
            tuple(n - 1 for n in tensor.shape),
            tuple(n // 2 for n in tensor.shape),
        ]:
            slope = 0.0
            for step in (1e-4, -1e-4):
                tensor[index] += step
                slope += oracles.expert.layer(case.params, [shard], plan).loss / (2 * step)
                tensor[index] -= step
            assert slope == pytest.approx(
                float(gradient[index]), abs=1e-6 * float(gradient.abs().max()) + 1e-7
            )
