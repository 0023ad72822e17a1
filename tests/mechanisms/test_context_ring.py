"""PAR-CONTEXT-RING: attention over a sequence that is split over ranks.

Question   Can local queries see all keys through exchange, with the dense result and its gradients, at what bytes?
Baseline   dense attention in one process, float64.
Candidate  --subject: ring, all-gather and all-to-all (Ulysses) variants; contiguous, zigzag and striped layouts.
Claims     C1  the output equals dense attention.
           C2  dq, dk, dv and gradients of what all ranks hold (norm weights, a prefix) equal those of dense attention.
           C3  every position is held once, by the rank the layout names; zigzag gives all ranks equal causal work,
               document_zigzag also where documents are packed.
           C4  online softmax parts may be merged in any order, also parts without a visible key.
           C5  rounds and bytes of forward and backward equal the algorithm's formula, and nothing else is sent.
           C6  what does not split, or what a variant cannot do, is refused by name.
Not shown  speed, overlap of exchange and compute, a fused ring kernel.
"""

import dataclasses
import itertools

import pytest

from parproof import checks, oracles, programs, workloads
from parproof.checks import assert_within
from parproof.checks import context_cases as cases
from parproof.checks.bounds import reassociation_bound
from parproof.subjects.context_protocol import VARIANTS, ContextPlan
from parproof.workloads.context_plans import (
    DOCUMENTS,
    EVEN_DOCUMENTS,
    IN_TURN,
    LENGTH,
    PACKED,
    REFUSED,
    REFUSED_SHARINGS,
    SHARED_HEADS,
    SHARINGS,
    WHOLE_LAYOUTS,
)

pytestmark = [pytest.mark.experiment("PAR-CONTEXT-RING"), pytest.mark.lanes("cpu", control=4)]

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7}
over_world = pytest.mark.parametrize("world", [2, 3, 4], ids="W{}".format)
by_variant = pytest.mark.parametrize("variant", VARIANTS)
by_balance = pytest.mark.parametrize("balance", WHOLE_LAYOUTS)
by_mask = pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])


def attend(ranks, subject, world, plan, *, heads=4, kv_heads=4, dtype="float64", magnitude=1, groups=1):
    """Run one case and judge it; returns the run and its worst error. Claims that ask for the same case share the run."""
    subject.require(f"context.{plan.variant}.{plan.balance}.{'causal' if plan.causal else 'full'}.{dtype}")
    case = heads, kv_heads, plan.sequence_length, dtype, magnitude, plan.causal, plan.document_lengths
    wholes, answers = zip(*(cases.plain(*case, group) for group in range(groups)), strict=True)
    run = ranks(world).run_once(programs.context.attend, subject, plan, wholes)
    return run, checks.context.assert_attention(run, run.results, plan, answers, EPSILON[dtype])


def tell(evidence, run, plan, worst, results=None, **parameters):
    """The record of a run: the case, its error, and the bytes of inputs, output and gradients that ranks hold."""
    evidence.on("attention_integers", world=run.world_size, **dataclasses.asdict(plan), **parameters)
    held = [r["held_bytes"] for r in results or run.results]
    evidence.measured(error_over_bound=worst, held_bytes_per_rank=held)


@pytest.mark.claim("C1", "C2")
@by_variant
@by_balance
@by_mask
@over_world
def test_c1_c2_output_and_gradients_equal_dense_attention(
    world, causal, balance, variant, ranks, subject, evidence
):
    """Float64, so that anything but re-association shows."""
    plan = ContextPlan(variant, balance, causal, LENGTH)
    heads = 12 if world == 3 else 4
    run, worst = attend(ranks, subject, world, plan, heads=heads, kv_heads=heads)
    tell(evidence, run, plan, worst, heads=heads, kv_heads=heads, dtype="float64")


@pytest.mark.claim("C1", "C2")
@by_mask
@pytest.mark.parametrize(("kv_heads", "variant"), SHARED_HEADS, ids="{}".format)
def test_c1_c2_hold_when_queries_share_key_value_heads(kv_heads, variant, causal, ranks, subject):
    """The gradient of a shared head is the sum over its query heads. Ulysses needs a shared head for each rank."""
    subject.require(f"context.{variant}.grouped_heads.{'causal' if causal else 'full'}")
    plan = ContextPlan(variant, "zigzag" if causal else "contiguous", causal, LENGTH)
    attend(ranks, subject, 2, plan, heads=8, kv_heads=kv_heads)


@pytest.mark.claim("C1", "C2")
@by_variant
@by_mask
@pytest.mark.parametrize("packed", PACKED)
def test_c1_c2_hold_for_documents_of_different_lengths(packed, causal, variant, ranks, subject):
    """Document ends do not fall on shard ends; some ranks see no key of some blocks; a layout moves both."""
    documents, balance = PACKED[packed]
    subject.require(f"context.{variant}.documents")
    subject.require(f"context.{variant}.{balance}.{'causal' if causal else 'full'}.float64")
    attend(ranks, subject, 4, ContextPlan(variant, balance, causal, LENGTH, documents))


@pytest.mark.claim("C1", "C2")
@by_variant
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("magnitude", [1, 1024], ids=["small_scores", "large_scores"])
def test_c1_c2_hold_in_lower_precision_and_for_large_scores(
    magnitude, dtype, variant, ranks, subject, evidence
):
    """Scores of some thousands overflow an exponential that is taken without its peak."""
    plan = ContextPlan(variant, "zigzag", True, LENGTH)
    run, worst = attend(ranks, subject, 4, plan, dtype=dtype, magnitude=magnitude)
    tell(evidence, run, plan, worst, dtype=dtype, magnitude=magnitude)


@pytest.mark.claim("C1", "C2", "C5")
@by_variant
def test_c1_c2_c5_hold_in_groups_that_are_not_the_world(variant, ranks, subject, evidence):
    """Ranks 0, 2 and 1, 3 at once, with data of their own: a group-local rank is no global rank, nor is any group of two."""
    assert_exchanged(evidence, ranks, subject, 4, ContextPlan(variant, "contiguous", True, LENGTH), groups=2)


@pytest.mark.claim("C1", "C2", "C5")
@by_variant
@pytest.mark.parametrize("kind", SHARINGS)
def test_c1_c2_c5_hold_with_tensors_that_every_rank_holds(kind, variant, ranks, subject, evidence):
    """Norm weights, a prefix: two calls add up to gradients of all positions; a prefix counts once, not once a rank."""
    sharing, layers = SHARINGS[kind], cases.shared(kind)
    for capability in sharing.needs(variant):
        subject.require(capability)
    plan, algorithm = sharing.plan(variant), subject.make("context").algorithm(sharing.plan(variant))
    data = [layer.calls for layer in layers], [layer.shared for layer in layers]
    run = ranks(4).run(programs.context.attend_sharing, subject, plan, *data)
    worst = cases.assert_layers(run, plan, layers, EPSILON["float64"])
    tell(evidence, run, plan, worst, [made[-1] for made, _ in run.results], kind=kind, dtype="float64")
    whole, shared = layers[0].calls[0], layers[0].shared
    evidence.predict(checks.context.assert_exchanged(run, algorithm, whole, shared, len(layers), cases.CALLS))


@pytest.mark.claim("C1", "C2")
@by_variant
@pytest.mark.parametrize("packing", IN_TURN)
def test_c1_c2_hold_call_after_call_and_the_calls_are_timed(packing, variant, ranks, subject, evidence):
    """One instance, other data or documents each time. Seconds are facts of a backend on shared cores, no verdicts."""
    subject.require(f"context.{variant}.contiguous.causal.float64")
    if any(IN_TURN[packing]):
        subject.require(f"context.{variant}.documents")
    calls, turns = 6, cases.turns(variant, IN_TURN[packing])
    run = ranks(2, ledger=False).run(programs.context.attend_often, subject, turns, calls)
    worst = cases.assert_turns(run, turns, EPSILON["float64"])
    last, seconds = [made[-1] for made, _ in run.results], [taken for _, taken in run.results]
    tell(evidence, run, turns[0].plan, worst, last, calls=calls, packing=packing)
    for phase in ("forward", "backward") if packing == "one_document" else ():
        evidence.timed(f"attention {phase}", [of_rank[phase][1:] for of_rank in seconds], warmup=1)


@pytest.mark.claim("C3")
@by_balance
@over_world
def test_c3_each_position_is_held_once_by_the_rank_the_layout_names(world, balance, subject, evidence):
    """Blocks, mirrored pairs of blocks, or every p-th position; zigzag work is equal to the pair."""
    subject.require(f"context.ring.{balance}.causal.float64")
    plan = ContextPlan("ring", balance, True, LENGTH)
    held = [subject.make("context").positions(plan, rank, world) for rank in range(world)]
    evidence.measured(visible_pairs_per_rank=checks.context.assert_layout(held, plan))


@pytest.mark.claim("C3")
@over_world
@pytest.mark.parametrize("balance", ["document_zigzag"])
def test_c3_zigzag_within_each_document_balances_packed_documents(balance, world, subject, evidence):
    """Zigzag over the whole sequence leaves some ranks the ends of long documents; this layout does not."""
    subject.require("context.all_gather.documents")
    subject.require(f"context.all_gather.{balance}.causal.float64")
    plan = ContextPlan("all_gather", balance, True, LENGTH, EVEN_DOCUMENTS[world])
    held = [subject.make("context").positions(plan, rank, world) for rank in range(world)]
    work = checks.context.assert_layout(held, plan)
    evidence.on("attention_layout", world=world, **dataclasses.asdict(plan))
    evidence.measured(visible_pairs_per_rank=work)


@pytest.mark.claim("C4")
def test_c4_parts_merge_in_any_order_to_the_dense_result(subject):
    """Four blocks of keys, one of them masked for half of the queries, in all 24 orders."""
    subject.require("context.merge")
    q, k, v, d_out = workloads.context.tensors(heads=2, kv_heads=2, length=8, dtype=programs.context.FLOAT64)
    parts = programs.context.partials(q, k, v, num_blocks=4)
    expected = oracles.context.dense(q, k, v, d_out, causal=True, document_lengths=())[0]["out"]
    merge = subject.make("context").merge
    norm = float(expected.norm())
    bound = reassociation_bound(EPSILON["float64"], norm=norm, all_norm=norm, ranks=4, length=8)
    for order in itertools.permutations(range(4)):
        merged = merge([parts[i] for i in order])
        assert_within(merged, expected, bound=bound, where=f"order {order}", what="merged")


def assert_exchanged(
    evidence, ranks, subject, world, plan, *, heads=4, kv_heads=4, dtype="float64", groups=1
):
    """Every rank's ledger of one case is what the formula says of it, forward and backward apart."""
    shape = {"heads": heads, "kv_heads": kv_heads, "dtype": dtype, "groups": groups}
    run, worst = attend(ranks, subject, world, plan, **shape)
    tell(evidence, run, plan, worst, **shape)
    whole, _ = cases.plain(heads, kv_heads, LENGTH, dtype, 1, plan.causal, plan.document_lengths, 0)
    algorithm = subject.make("context").algorithm(plan)
    evidence.predict(checks.context.assert_exchanged(run, algorithm, whole, groups=groups))


@pytest.mark.claim("C5")
@by_variant
@over_world
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_c5_rounds_and_bytes_equal_the_formula(dtype, world, variant, ranks, subject, evidence):
    """bfloat16 gradients travel in the accumulation dtype, float32: twice the bytes of their K and V."""
    plan = ContextPlan(variant, "contiguous", True, LENGTH)
    heads = {"heads": 12, "kv_heads": 12} if world == 3 else {}
    assert_exchanged(evidence, ranks, subject, world, plan, dtype=dtype, **heads)


@pytest.mark.claim("C5")
@by_variant
@by_mask
@pytest.mark.parametrize("kind", ["zigzag", "striped", "documents", "gqa", "bfloat16"])
def test_c5_layout_mask_and_documents_change_no_byte(kind, causal, variant, ranks, subject, evidence):
    """Nor do they change a round. Shared heads travel once, unless the algorithm's formula says otherwise."""
    balanced = {"striped": "striped", "zigzag": "zigzag"} | ({"gqa": "zigzag"} if causal else {})
    balance = balanced.get(kind, "contiguous")
    plan = ContextPlan(variant, balance, causal, LENGTH, DOCUMENTS if kind == "documents" else ())
    needed = {"documents": ".documents", "gqa": f".grouped_heads.{'causal' if causal else 'full'}"}
    subject.require(f"context.{variant}{needed.get(kind, '')}")
    shapes = {"gqa": {"heads": 8, "kv_heads": 2}, "bfloat16": {"dtype": "bfloat16"}}.get(kind, {})
    assert_exchanged(evidence, ranks, subject, 2 if kind == "gqa" else 4, plan, **shapes)


@pytest.mark.claim("C6")
@pytest.mark.parametrize("name", REFUSED)
def test_c6_what_cannot_be_split_is_refused(name, ranks, subject):
    """On every rank, before anything is sent."""
    subject.require("context.refusals")
    plan, heads, kv_heads, text = REFUSED[name]
    run = ranks(2).run(programs.context.refusal, subject, plan, heads, kv_heads)
    checks.context.assert_refused(run, text)


@pytest.mark.claim("C6")
@pytest.mark.parametrize("name", REFUSED_SHARINGS)
def test_c6_shared_tensors_that_mean_nothing_are_refused(name, ranks, subject):
    """Half a pair, heads that do not fit, a prefix of no document: each would be broadcast or counted in silence."""
    subject.require("context.sharing.refusals")
    shapes, documents, text = REFUSED_SHARINGS[name]
    plan = ContextPlan("ring", "contiguous", True, LENGTH, documents)
    checks.context.assert_refused(ranks(2).run(programs.context.refusal, subject, plan, 4, 4, shapes), text)
