"""PAR-TENSOR-LAYOUT: layers and tensors split over the ranks of a group.

Question   Does a split layer give what the whole one gives, with one sum where one is enough, and less on each rank?
Baseline   one process, unsplit weights, float64 (src/parproof/oracles/tensor.py).
Candidate  --subject: reference (crossings on plain collectives), torch_native (DTensor, parallelize_module).
Claims     C1   column and row layers: the output is the baseline's, bit for bit.
           C2   … and so are the gradients of inputs, weights and biases (a row's bias counts once).
           C3   column → row MLP: ReLU exact; GELU, SwiGLU, GEGLU within the derived bound; output and gradients.
           C4   attention: MHA, GQA, MQA, with K/V heads split or shared by ranks; output and gradients.
           C5   embedding (exact) and cross entropy with the vocabulary split; ignored targets, large logits.
           C6   sequence-parallel block; gradients of norms and biases are sums over ranks, equal on all of them.
           C7   sizes and head counts that do not divide are split or refused, never wrong; the plan table.
           C8   calls and payload bytes of forward and of backward equal the prediction, and nothing else occurred.
           C9   parameter bytes alive on each rank equal the formula.
           C10  a tensor that is moved, joined or for a while plain local tensors keeps its elements and gradient.
           C11  mean, var, std, norm, view and writing to a slice mean on a split tensor what they mean on a whole.
           C12  a random tensor depends on its seed, not on how it is split.
           C13  the gradient norm of a split layer is the norm of the whole gradients.
Not shown  speed, overlap, activation memory: PAR-CPU is gloo on shared cores. Setting a layer up may communicate.
"""

import pytest

from parproof import checks, oracles, programs, workloads
from parproof.cost.tensor_plan import GOLDEN_PLANS

pytestmark = [pytest.mark.experiment("PAR-TENSOR-LAYOUT"), pytest.mark.lanes("cpu", "cuda2", control=4)]

over_p = pytest.mark.parametrize("p", [2, 3, 4], ids="W{}".format)  # one rank would pass for any subject
on_few = pytest.mark.parametrize("p", [2, 3], ids="W{}".format)  # what 3 does not divide is as uneven over 4
PLANS = [("mha", 2), ("mha", 3), ("gqa", 2), ("gqa", 4), ("mqa", 3), ("gqa_replicated", 4)]
"""Each kind on an even and an odd or larger world where its heads allow it."""
MOVES = [(kind, p) for kind in ("line", "turns", "sums", "thin_grid", "handed_over") for p in (2, 3, 4)]
MOVES += [("grid", 4), ("flattened_grid", 4), ("sums_on_a_grid", 4)]


def over(names, pairs):
    """Parametrise by (word, p)."""
    return pytest.mark.parametrize(names, pairs, ids=lambda v: v if isinstance(v, str) else f"W{v}")


@pytest.fixture
def judge_layers(ranks, subject, evidence):
    """Run forward and backward of cases on p ranks and compare with the unsplit layers."""

    def judged(workload, p, cases, *parts):
        cases = checks.tensor.provided(subject, cases, p)
        evidence.on(workload, p=p, cases=[case.name for case in cases])
        outcomes = ranks(p).run_once(programs.tensor.layers, subject, cases).results
        evidence.measured(refused=checks.tensor.judge(outcomes, cases, parts or ("output", "gradients")))

    return judged


@pytest.mark.claim("C1")
@on_few
def test_c1_linear_outputs_are_the_baselines_bit_for_bit(p, judge_layers):
    """Integers below 2**24 in float32: any order of summation gives the same number."""
    judge_layers("tensor_linear", p, workloads.tensor.LINEAR, "output")


@pytest.mark.claim("C2")
@on_few
def test_c2_linear_gradients_are_the_baselines_bit_for_bit(p, judge_layers):
    """Inputs, weights and biases; uneven parts, transposed and strided activations."""
    judge_layers("tensor_linear", p, workloads.tensor.LINEAR, "gradients")


@pytest.mark.claim("C1", "C2")
def test_c1_c2_two_interleaved_groups_work_at_once(ranks, subject, evidence):
    """Ranks 0, 2 and ranks 1, 3, with values of their own: a rank's number in its group is not its number in the world."""
    evidence.on("tensor_linear", p=2, num_groups=2)
    cases = checks.tensor.provided(subject, workloads.tensor.LINEAR, 2)
    results = ranks(4).run(programs.tensor.layers, subject, cases, num_groups=2).results
    for first in (0, 1):
        checks.tensor.judge(results[first::2], [workloads.tensor.of_group(case, first) for case in cases])


@pytest.mark.claim("C3")
@over(("activation", "p"), [("relu", 3), ("gelu", 2), ("gelu", 4), ("gated", 3)])
def test_c3_a_split_mlp_is_the_whole_mlp(p, activation, judge_layers):
    """A gated layer must split the gate and what it gates alike."""
    judge_layers("tensor_mlp", p, workloads.tensor.MLPS[activation])


@pytest.mark.claim("C4")
@over(("plan", "p"), PLANS)
def test_c4_split_attention_is_whole_attention(plan, p, judge_layers):
    """With the bias of K, whose true gradient is zero: judged absolutely, by the floor of the bound."""
    judge_layers("tensor_attention", p, workloads.tensor_cost.ledger_cases(plan, p))


@pytest.mark.claim("C5")
@on_few
def test_c5_an_embedding_split_along_the_vocabulary_is_exact(p, judge_layers):
    """Ids at both ends of the vocabulary, repeated ids (their gradients add up)."""
    judge_layers("tensor_embedding", p, workloads.tensor.EMBEDDINGS)


@pytest.mark.claim("C5")
@pytest.mark.parametrize("kind", ["plain", "ignored_id_in_vocabulary", "large_logits"])
@on_few
def test_c5_cross_entropy_never_needs_all_the_logits(p, kind, judge_layers):
    """Targets on every rank's part; every third token ignored; logits of thousands must not overflow."""
    judge_layers("tensor_loss", p, workloads.tensor.LOSSES[kind])


@pytest.mark.claim("C6")
@over(("kind", "p"), [("layer_norm", 2), ("layer_norm", 3), ("rms_norm", 3)])
def test_c6_a_sequence_parallel_block_is_the_whole_block(p, kind, judge_layers):
    """Each rank normalises its own tokens, so the gradient of the norm is a sum over ranks."""
    judge_layers("tensor_sequence", p, workloads.tensor.SEQUENCES[kind])


@pytest.mark.claim("C7")
def test_c7_the_plan_table(ranks, subject):
    """Whole heads for every rank, or a refusal."""
    subject.require("tensor.plan")
    found = ranks(2).run(programs.tensor.plans, subject, list(GOLDEN_PLANS)).results
    checks.tensor.assert_plans(found, GOLDEN_PLANS)


@pytest.mark.claim("C8")
@over(("plan", "p"), [("other_layers", p) for p in (2, 3, 4)] + PLANS)
def test_c8_forward_and_backward_send_what_is_predicted_and_nothing_else(plan, p, ranks, subject, evidence):
    """The ledger is measured in the rank; the prediction is computed from sizes alone."""
    of = workloads.tensor_cost
    cases = checks.tensor.provided(subject, of.ledger_cases(plan, p), p, ".traffic")
    run = ranks(p).run_once(programs.tensor.layers, subject, cases)
    for case in cases:
        evidence.predict(of.predicted(case, p), within=[case.name for case in cases])
        for rank, rows in enumerate(run.ledgers):
            mine = [row for row in rows if row.phase.startswith(f"{case.name}/")]
            checks.assert_ledger(mine, of.predicted(case, p), where=f"{run.where(rank)}: {case.name}")


@pytest.mark.claim("C9")
@on_few
def test_c9_each_rank_keeps_its_part_of_the_parameters_alive(p, ranks, subject, evidence):
    """Storage, not size: a view into a whole weight keeps the whole alive."""
    of = workloads.tensor_cost
    evidence.on("tensor_layers", p=p)
    for plan in ("other_layers", "mha"):
        cases = checks.tensor.provided(subject, of.ledger_cases(plan, p), p)
        run = ranks(p).run_once(programs.tensor.layers, subject, cases)
        for case, by_rank in zip(cases, zip(*run.results, strict=True), strict=True):
            checks.tensor.assert_resident_bytes(by_rank, case, of.resident_bytes(case, p))


@pytest.mark.claim("C13")
@on_few
def test_c13_the_gradient_norm_counts_every_element_once(p, ranks, subject):
    """Split and replicated parameters in one layer; the same number on every rank."""
    cases = (workloads.tensor.MLPS["gelu"][0], workloads.tensor.SEQUENCES["layer_norm"][0])
    cases = checks.tensor.provided(subject, cases, p)
    run = ranks(p).run(programs.tensor.layers, subject, cases, norm=True)
    for number, case in enumerate(cases):
        norms = [result[number].gradient_norm for result in run.results]
        checks.tensor.assert_norm(norms, oracles.tensor.unsplit(case).gradient_norm, case.name)


@pytest.mark.claim("C13")
def test_c13_the_gradient_norm_of_layers_split_over_different_groups(ranks, subject):
    """One layer over four ranks, one over interleaved pairs: each element still counts once."""
    pair = (workloads.tensor.MLPS["gelu"][0], workloads.tensor.MLPS["gated"][0])
    outcomes = ranks(4).run(programs.tensor.norm_of_two_groups, subject, *pair).results
    checks.tensor.answered(outcomes, "two groups", may_refuse=False)
    squares = [oracles.tensor.unsplit(case).gradient_norm ** 2 for case in pair]
    checks.tensor.assert_norm([o.gradient_norm for o in outcomes], sum(squares) ** 0.5, "two groups")


@pytest.mark.claim("C10")
@over(("kind", "p"), MOVES)
def test_c10_a_moved_tensor_keeps_every_element(kind, p, ranks, subject, evidence):
    """Unequal parts, parts of parts, strided summands, axes of one rank; also out to plain tensors and back."""
    evidence.on("tensor_moves", p=p, kind=kind)
    moves = workloads.layouts.moves(kind, p)
    checks.layouts.assert_moves(ranks(p).run_once(programs.layouts.moves, subject, moves).results, moves)


@pytest.mark.claim("C8")
@over(("kind", "p"), [move for move in MOVES if move[0] != "flattened_grid"])  # at its axes' choice
def test_c8_a_move_sends_what_its_placements_ask_for(kind, p, ranks, subject, evidence):
    """Parts are gathered or exchanged, summands reduced into place, what all hold is cut; along one axis."""
    moves = workloads.layouts.moves(kind, p)
    run = ranks(p).run_once(programs.layouts.moves, subject, moves)
    checks.layout_traffic.assert_traffic(run, moves, subject)


@pytest.mark.claim("C10")
@pytest.mark.parametrize("kind", ["joins", "joins_of_own_parts"])
@over_p
def test_c10_parts_make_the_whole(p, kind, ranks, subject, evidence):
    """Every width that p does not divide; told the shape of the whole, or not: all of it, or a refusal by all."""
    cases = getattr(workloads.layouts, kind)(p)
    outcomes = ranks(p).run(programs.layouts.joins, subject, cases).results
    evidence.measured(refused=checks.layouts.assert_joined(outcomes, cases))


@pytest.mark.claim("C10")
def test_c10_axes_taken_as_one_are_all_their_ranks_in_order(ranks, subject):
    """Of 4 x 1 x 1, 1 x 1 x 4, 2 x 1 x 2 and 2 x 2 x 1 ranks; all axes, some, or those of one rank alone."""
    run = ranks(4).run(programs.layouts.flattened, subject, workloads.layouts.FLATTENED)
    checks.layouts.assert_flattened(run.results, workloads.layouts.FLATTENED)


@pytest.mark.claim("C11")
@over_p
def test_c11_statistics_of_unequal_parts(p, ranks, subject, evidence):
    """The mean of means is not the mean."""
    shape, names = (3, 7), ("mean", "var", "std", "norm")
    layouts = [workloads.layouts.line(p, placement) for placement in ("S0", "S1", "R")]
    found = ranks(p).run(programs.layouts.statistics, subject, shape, layouts, names).results
    checks.layouts.assert_statistics(found, shape, layouts)


@pytest.mark.claim("C11")
@pytest.mark.parametrize("operation", ["views", "fills", "fills_elsewhere"])
@over_p
def test_c11_views_and_writes_reach_the_elements_they_name(p, operation, ranks, subject, evidence):
    """A view that crosses parts; a slice that lies in one part, in several, or in none of a rank's."""
    cases = getattr(workloads.layouts, operation)(p)
    checks.layouts.assert_operated(ranks(p).run(programs.layouts.operations, subject, cases).results, cases)


@pytest.mark.claim("C12")
@pytest.mark.parametrize("kind", ["normal", "dropout"])
@over_p
def test_c12_a_random_tensor_does_not_depend_on_its_layout(p, kind, ranks, subject, evidence):
    """Asked for whole, split by rows, split by columns: the same numbers, and others for another seed."""
    layouts = [workloads.layouts.line(p, placement) for placement in ("R", "S0", "S1")]
    found = ranks(p).run(programs.layouts.random_tensors, subject, (12, 12), layouts, kind, 7).results
    checks.layouts.assert_drawn(found, layouts, kind)


# Last, because a subject that fails here takes its ranks with it, and new ones start cold.
AWKWARD = [("loss", 3), ("sequence", 3), *((k, p) for k in ("linear", "embedding", "heads") for p in (3, 4))]


@pytest.mark.claim("C7")
@over(("kind", "p"), AWKWARD)
def test_c7_what_does_not_divide_is_split_right_or_refused_by_all(kind, p, judge_layers):
    """Fewer rows, ids or tokens than ranks, and head counts that would cut a head."""
    judge_layers("tensor_awkward", p, workloads.tensor.awkward(kind, p))


@pytest.mark.claim("C6")
def test_c6_unequal_numbers_of_tokens(judge_layers):
    """Eleven tokens over three ranks: what a rank sends does not say how many there are."""
    judge_layers("tensor_sequence", 3, workloads.tensor.SEQUENCES["uneven"])
