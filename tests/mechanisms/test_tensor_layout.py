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
           C10  a tensor moved to another layout keeps every element, and so does its gradient.
           C11  mean, var, std, norm, view and writing to a slice mean on a split tensor what they mean on a whole.
           C12  a random tensor depends on its seed, not on how it is split.
           C13  the gradient norm of a split layer is the norm of the whole gradients.
Not shown  speed, overlap, activation memory: PAR-CPU is gloo on shared cores. Setting a layer up may communicate.
"""

import dataclasses

import pytest

from parproof import checks, oracles, programs, workloads
from parproof.cost.tensor_plan import attention_plan

pytestmark = [pytest.mark.experiment("PAR-TENSOR-LAYOUT"), pytest.mark.lanes("cpu", "cuda2")]

over_p = pytest.mark.parametrize("p", [2, 3, 4], ids="W{}".format)  # one rank would pass for any subject
PLANS = [("mha", 2), ("mha", 3), ("gqa", 2), ("gqa", 3), ("gqa", 4), ("mqa", 2), ("mqa", 3), ("mqa", 4)]
PLANS += [("gqa_replicated", 4)]
attention_plans = pytest.mark.parametrize(
    ("plan", "p"), PLANS, ids=lambda v: v if isinstance(v, str) else f"W{v}"
)


def run_layers(ranks, subject, p, cases, **options):
    """Forward and backward of each case on p ranks; outcomes[case][rank]."""
    run = ranks(p).run(programs.tensor.layers, subject, cases, **options)
    return run, list(zip(*run.results, strict=True))


def judge(outcomes, cases, *parts):
    """Compare what the ranks hold with the unsplit layer; returns the names of refused cases."""
    refused = []
    for case, by_rank in zip(cases, outcomes, strict=True):
        if not checks.tensor.answered(by_rank, case.name, may_refuse=workloads.tensor.may_refuse(case)):
            refused.append(case.name)
            continue
        answer = oracles.tensor.unsplit(case)
        for part in parts:
            getattr(checks.tensor, f"assert_{part}")(by_rank, case, answer)
    return refused


@pytest.mark.claim("C1")
@over_p
def test_c1_linear_outputs_are_the_baselines_bit_for_bit(p, ranks, subject, evidence):
    """Integers below 2**24 in float32: any order of summation gives the same number."""
    cases = workloads.tensor.LINEAR
    evidence.on("tensor_linear", p=p, cases=[case.name for case in cases])
    _, outcomes = run_layers(ranks, subject, p, cases)
    evidence.measured(refused=judge(outcomes, cases, "output"))


@pytest.mark.claim("C2")
@over_p
def test_c2_linear_gradients_are_the_baselines_bit_for_bit(p, ranks, subject, evidence):
    """Inputs, weights and biases; uneven parts, transposed and strided activations."""
    cases = workloads.tensor.LINEAR
    evidence.on("tensor_linear", p=p, cases=[case.name for case in cases])
    _, outcomes = run_layers(ranks, subject, p, cases)
    evidence.measured(refused=judge(outcomes, cases, "gradients"))


@pytest.mark.claim("C1", "C2")
def test_c1_c2_two_interleaved_groups_work_at_once(ranks, subject, evidence):
    """Ranks 0, 2 and ranks 1, 3: a rank's number in its group is not its number in the world."""
    cases = workloads.tensor.LINEAR
    evidence.on("tensor_linear", p=2, num_groups=2)
    run, _ = run_layers(ranks, subject, 4, cases, num_groups=2)
    for first in (0, 1):
        outcomes = list(zip(*run.results[first::2], strict=True))
        judge(outcomes, cases, "output", "gradients")


@pytest.mark.claim("C3")
@pytest.mark.parametrize("activation", ["relu", "gelu", "gated"])
@over_p
def test_c3_a_split_mlp_is_the_whole_mlp(p, activation, ranks, subject, evidence):
    """A gated layer must split the gate and what it gates alike."""
    cases = workloads.tensor.MLPS[activation]
    evidence.on("tensor_mlp", p=p, cases=[case.name for case in cases])
    _, outcomes = run_layers(ranks, subject, p, cases)
    evidence.measured(refused=judge(outcomes, cases, "output", "gradients"))


@pytest.mark.claim("C4")
@attention_plans
def test_c4_split_attention_is_whole_attention(plan, p, ranks, subject, evidence):
    """With the bias of K, whose true gradient is zero: judged absolutely, by the floor of the bound."""
    attention_case = workloads.tensor_cost.attention_case
    cases = (attention_case(plan, p), attention_case(plan, p, "float32"))
    mode = attention_plan(12, cases[0].options["kv_heads"], p)["kv_mode"]
    subject.require(f"tensor.attention.{mode}")
    evidence.on("tensor_attention", p=p, q_heads=12, kv_heads=cases[0].options["kv_heads"])
    _, outcomes = run_layers(ranks, subject, p, cases)
    judge(outcomes, cases, "output", "gradients")


@pytest.mark.claim("C5")
@over_p
def test_c5_an_embedding_split_along_the_vocabulary_is_exact(p, ranks, subject, evidence):
    """Ids at both ends of the vocabulary, repeated ids (their gradients add up)."""
    cases = workloads.tensor.EMBEDDINGS
    evidence.on("tensor_embedding", p=p, cases=[case.name for case in cases])
    _, outcomes = run_layers(ranks, subject, p, cases)
    evidence.measured(refused=judge(outcomes, cases, "output", "gradients"))


@pytest.mark.claim("C5")
@pytest.mark.parametrize("kind", ["plain", "ignored_id_in_vocabulary", "large_logits"])
@over_p
def test_c5_cross_entropy_never_needs_all_the_logits(p, kind, ranks, subject, evidence):
    """Targets on every rank's part; every third token ignored; logits of ±1500 must not overflow."""
    subject.require(f"tensor.loss.{kind}")
    cases = workloads.tensor.LOSSES[kind]
    evidence.on("tensor_loss", p=p, cases=[case.name for case in cases])
    _, outcomes = run_layers(ranks, subject, p, cases)
    evidence.measured(refused=judge(outcomes, cases, "output", "gradients"))


@pytest.mark.claim("C6")
@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm", "uneven"])
@over_p
def test_c6_a_sequence_parallel_block_is_the_whole_block(p, kind, ranks, subject, evidence):
    """Each rank normalises its own tokens, so the gradient of the norm is a sum over ranks."""
    cases = workloads.tensor.SEQUENCES[kind]
    evidence.on("tensor_sequence", p=p, cases=[case.name for case in cases])
    _, outcomes = run_layers(ranks, subject, p, cases)
    evidence.measured(refused=judge(outcomes, cases, "output", "gradients"))


@pytest.mark.claim("C8")
@pytest.mark.parametrize("plan", ["other_layers", "mha", "gqa", "mqa", "gqa_replicated"])
@over_p
def test_c8_forward_and_backward_send_what_is_predicted_and_nothing_else(p, plan, ranks, subject, evidence):
    """The ledger is measured in the rank; the prediction is computed from sizes alone."""
    of, kv = workloads.tensor_cost, workloads.tensor_cost.KV_HEADS.get(plan, {p: 12})
    if p not in kv:
        pytest.skip(f"{plan} needs {sorted(kv)} ranks; found {p}")
    subject.require(f"tensor.attention.{attention_plan(12, kv[p], p)['kv_mode']}")
    cases = of.ledger_cases(None if plan == "other_layers" else plan, p)
    run, _ = run_layers(ranks, subject, p, cases)
    for case in cases:
        evidence.predict(of.predicted(case, p))
        for rank, rows in enumerate(run.ledgers):
            mine = [row for row in rows if row.phase.startswith(f"{case.name}/")]
            checks.assert_ledger(mine, of.predicted(case, p), where=f"{run.where(rank)}: {case.name}")


@pytest.mark.claim("C9")
@over_p
def test_c9_each_rank_keeps_its_part_of_the_parameters_alive(p, ranks, subject, evidence):
    """Storage, not size: a view into a whole weight keeps the whole alive."""
    of = workloads.tensor_cost
    cases = [*of.ledger_cases(None, p), of.attention_case("mha", p)]
    run, outcomes = run_layers(ranks, subject, p, cases)
    for case, by_rank in zip(cases, outcomes, strict=True):
        for rank, outcome in enumerate(by_rank):
            expected = of.resident_bytes(case, p)
            assert outcome.resident_bytes == expected, (
                f"{run.where(rank)}: {case.name}: {outcome.resident_bytes} parameter bytes, expected {expected}"
            )


@pytest.mark.claim("C13")
@over_p
def test_c13_the_gradient_norm_counts_every_element_once(p, ranks, subject, evidence):
    """Split and replicated parameters in one layer; the same number on every rank."""
    cases = (workloads.tensor.MLPS["gelu"][0], workloads.tensor.SEQUENCES["layer_norm"][0])
    run, outcomes = run_layers(ranks, subject, p, cases, norm=True)
    for case, by_rank in zip(cases, outcomes, strict=True):
        expected = oracles.tensor.unsplit(case).gradient_norm
        for rank, outcome in enumerate(by_rank):
            close = abs(outcome.gradient_norm - expected) <= 1e-13 * expected
            text = f"gradient norm {outcome.gradient_norm}, expected {expected}"
            assert close, f"{run.where(rank)}: {case.name}: {text}"


GOLDEN_PLANS = {
    (32, 8, 4): (8, "shard", 2, 1),
    (32, 2, 4): (8, "replicate", 1, 2),
    (12, 12, 3): (4, "shard", 4, 1),
    (12, 1, 4): (3, "replicate", 1, 4),
    **dict.fromkeys([(30, 8, 4), (32, 6, 4), (32, 8, 0), (0, 8, 4), (12, 8, 4), (12, -1, 4)], "refused"),
}


@pytest.mark.claim("C7")
def test_c7_the_plan_table(ranks, subject, evidence):
    """Whole heads for every rank, or a refusal."""
    subject.require("tensor.plan")
    for rank, found in enumerate(ranks(2).run(programs.tensor.plans, subject, list(GOLDEN_PLANS)).results):
        for asked, observed, expected in zip(GOLDEN_PLANS, found, GOLDEN_PLANS.values(), strict=True):
            shown = "refused" if isinstance(observed, str) else dataclasses.astuple(observed)
            assert shown == expected, f"rank {rank} of 2: plan {asked}: observed {shown}, expected {expected}"


@pytest.mark.claim("C7")
@over_p
def test_c7_what_does_not_divide_is_split_right_or_refused_by_all(p, ranks, subject, evidence):
    """Fewer rows, ids or tokens than ranks, and head counts that would cut a head."""
    cases = workloads.tensor.AWKWARD
    evidence.on("tensor_awkward", p=p, cases=[case.name for case in cases])
    _, outcomes = run_layers(ranks, subject, p, cases)
    evidence.measured(refused=judge(outcomes, cases, "output", "gradients"))


def judge_moves(ranks, subject, p, moves):
    """Each tensor after a move, and its gradient, element by element."""
    run = ranks(p).run(programs.tensor.redistributions, subject, moves)
    for number, move in enumerate(moves):
        by_rank = [result[number] for result in run.results]
        checks.tensor.assert_move(by_rank, move)


@pytest.mark.claim("C10")
@pytest.mark.parametrize("kind", ["moves_on_a_line", "sums_on_a_line", "moves_on_a_thin_grid"])
@over_p
def test_c10_a_moved_tensor_keeps_every_element(p, kind, ranks, subject, evidence):
    """Parts of unequal size, summands that do not lie contiguously in memory, mesh axes of one rank."""
    evidence.on("tensor_moves", p=p, kind=kind)
    judge_moves(ranks, subject, p, getattr(workloads.layouts, kind)(p))


@pytest.mark.claim("C10")
@pytest.mark.parametrize("mesh", ["grid", "flattened_grid"])
def test_c10_a_tensor_split_over_two_axes_keeps_every_element(mesh, ranks, subject, evidence):
    """One dim split by both axes of 2 x 2 ranks: the parts of the parts are not those of four equal ranks."""
    evidence.on("tensor_moves", p=4, kind=mesh)
    judge_moves(ranks, subject, 4, workloads.layouts.moves_on_a_grid(flattened=mesh == "flattened_grid"))


@pytest.mark.claim("C11")
@over_p
def test_c11_statistics_of_unequal_parts(p, ranks, subject, evidence):
    """The mean of means is not the mean."""
    shape, names = (3, 7), ("mean", "var", "std", "norm")
    layouts = [workloads.layouts.line(p, placement) for placement in ("S0", "S1", "R")]
    run = ranks(p).run(programs.tensor.statistics, subject, shape, layouts, names)
    for rank, by_layout in enumerate(run.results):
        for layout, found in zip(layouts, by_layout, strict=True):
            for name in names:
                expected = workloads.layouts.statistic(shape, name)
                bound = checks.tensor.rounding_bound(expected.dtype, p, 21, float(expected), 0.0)
                what = f"{name} of {layout.placements[0]}"
                checks.assert_within(found[name], expected, bound=bound, where=run.where(rank), what=what)


@pytest.mark.claim("C11")
@pytest.mark.parametrize("operation", ["views", "fills"])
@over_p
def test_c11_views_and_writes_reach_the_elements_they_name(p, operation, ranks, subject, evidence):
    """A view that crosses parts; a slice that lies in one part, in several, or in none of a rank's."""
    subject.require(f"tensor.{operation[:-1]}")
    cases = getattr(workloads.layouts, operation)(p)
    run = ranks(p).run(getattr(programs.tensor, operation), subject, cases)
    for number, case in enumerate(cases):
        checks.tensor.assert_whole([result[number] for result in run.results], case.whole(), f"{case}")


@pytest.mark.claim("C12")
@pytest.mark.parametrize("kind", ["normal", "dropout"])
@over_p
def test_c12_a_random_tensor_does_not_depend_on_its_layout(p, kind, ranks, subject, evidence):
    """Asked for whole, split by rows, split by columns: the same numbers."""
    layouts = [workloads.layouts.line(p, placement) for placement in ("R", "S0", "S1")]
    run = ranks(p).run(programs.tensor.random_tensors, subject, (12, 12), layouts, kind, 7)
    whole = run.results[0][0].output.local
    for number, layout in enumerate(layouts):
        by_rank = [result[number] for result in run.results]
        checks.tensor.assert_whole(by_rank, whole, f"{kind} values in layout {layout.placements[0]}")
