"""PAR-EXPERT-DISPATCH: tokens that travel to experts on other ranks, and their answers back.

Question   How do routing, capacity and placement turn into dropped routes, uneven load and bytes between ranks?
Baseline   the same layer in one process, token by token, with its gradients written out (EP = 1 too).
Candidate  --subject: router, capacity, dispatch, experts and combine over EP, EP×DP and EP×TP ranks.
Claims     C1  outputs equal the baseline's: top-k, drops, padding, ranks without tokens, experts without any.
           C2  gradients of router, experts and inputs equal the baseline's; copies agree over dp and tp.
           C3  each route goes to the expert the router prefers, and is kept or dropped by capacity and order.
           C4  loads, overflow, effective tokens, ratios, logical and network bytes equal their definitions.
           C5  bytes of counts, dispatch, combine and their gradients equal the prediction; nothing else is sent.
           C6  what a rank sends for another is what that one expects; combine is the transpose of dispatch.
           C7  a mean over all tokens is not a mean of rank means, and a layer gives the one it was asked for.
           C8  accept, tune and reject change exactly at their limits.
           C9  plans and routes that cannot be are refused by name, on all ranks that would wait for each other.
Not shown  that skew costs time: on shared cores an exchange is mostly waiting, so seconds are recorded and not
           judged, the busiest rank's rows are (C4); overlap, a grouped-GEMM kernel. EP = 1 alone proves nothing.
"""

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parproof import checks, oracles, programs, workloads
from parproof.checks import assert_ledger
from parproof.checks import expert_cases as cases
from parproof.errors import InvalidPlan
from parproof.subjects.expert_protocol import NORMALISATIONS, Account, ExpertPlan
from parproof.workloads.expert_meshes import DISPATCHED, Mesh
from parproof.workloads.expert_routes import IMPOSSIBLE, LIMITS, PAGE

pytestmark = [pytest.mark.experiment("PAR-EXPERT-DISPATCH"), pytest.mark.lanes("cpu", "cuda2", control=4)]

DEADLINE_S = 20.0  # for one run: a rank that waits for nobody is found by it
STATELESS = [HealthCheck.function_scoped_fixture]  # an account remembers no other


def over(pairs):
    """Parametrise by (dispatcher, mesh)."""
    return pytest.mark.parametrize(
        ("dispatcher", "mesh"), pairs, ids=lambda v: v if isinstance(v, str) else v.name()
    )


on_meshes = over(DISPATCHED)
on_meshes_that_exchange = over([(d, mesh) for d, mesh in DISPATCHED if mesh.ep > 1 and d != "all_gather"])
routes_of_a_token = st.lists(st.integers(0, 5), max_size=3, unique=True)


@pytest.fixture
def figures(subject):
    """The subject's implementation, if it counts routes."""
    subject.require("expert.account")
    subject.require("expert.recommend")
    return subject.make("expert")


def run(ranks, subject, mesh, pairs, dtype="float64"):
    """(run, [(case, answer, outcomes of all ranks)]) of the cases that the subject provides, in one run."""
    pairs = checks.expert.provided(subject, pairs)
    done = ranks(mesh.world, deadline_s=DEADLINE_S).run_once(
        programs.expert.step, subject, mesh, [case for case, _ in pairs], dtype
    )
    outcomes = zip(*done.results, strict=True)
    return done, [(*pair, out) for pair, out in zip(pairs, outcomes, strict=True)]


def all_cases(ranks, subject, mesh, dispatcher):
    """Every integer case of a mesh: values and ledger of one run are judged by different tests."""
    subject.require(f"expert.{dispatcher}")
    return run(ranks, subject, mesh, cases.integers(mesh, dispatcher))


@pytest.mark.claim("C1", "C2", "C3")
@on_meshes
def test_c1_c2_c3_values_and_routes_equal_the_baseline(dispatcher, mesh, ranks, subject, evidence):
    """Integers in float64: equality is the tolerance. Styles of routing, drops, padding, empty ranks, ties."""
    evidence.on("expert_integers", mesh=mesh.name(), dispatcher=dispatcher)
    _, judged = all_cases(ranks, subject, mesh, dispatcher)
    for case, answer, outcomes in judged:
        checks.expert.assert_values(outcomes, case, answer)
    evidence.measured(cases=[case.name for case, _, _ in judged])


@pytest.mark.claim("C1", "C2", "C3")
@pytest.mark.parametrize(
    ("mesh", "dtype"),
    [(Mesh(ep=4), "float64"), (Mesh(dp=2, ep=2), "float32"), (Mesh(ep=2, tp=2), "float64")],
    ids=lambda v: v if isinstance(v, str) else v.name(),
)
def test_c1_c2_c3_hold_with_a_softmax_router(mesh, dtype, ranks, subject, evidence):
    """Probabilities over all or over the chosen experts, within the bound of docs/numerics.md."""
    evidence.on("expert_softmax", mesh=mesh.name(), dtype=dtype)
    _, judged = run(ranks, subject, mesh, cases.answered(workloads.expert.gated(mesh)), dtype)
    for case, answer, outcomes in judged:
        checks.expert.assert_values(outcomes, case, answer, dtype)


@pytest.mark.claim("C1")
@pytest.mark.lanes("cpu")
def test_c1_outputs_hold_call_after_call_and_the_calls_are_timed(ranks, subject, evidence):
    """One layer, balanced and skewed tokens in turn: nothing of a call may outlive it. Seconds are facts, no verdicts."""
    subject.require("expert.all_to_all")
    mesh, calls = Mesh(ep=4), 4
    pairs, program = cases.balanced_and_skewed(mesh), programs.expert_times.call_after_call
    done = ranks(4, ledger=False).run(program, subject, mesh, [case for case, _ in pairs], calls)
    checks.expert.assert_calls(done.results, pairs)
    evidence.on("expert_calls", mesh=mesh.name(), calls=calls)
    for place, (case, answer) in enumerate(pairs):
        rows = cases.rows_received(answer, mesh.ep)
        reasons = [of_rank[place].not_timed for of_rank in done.results if of_rank[place].not_timed]
        evidence.measured(**{case.name: cases.work(case, answer) | {"exchanges_not_timed": reasons}})
        for what in ("forward_s", "dispatch_s", "combine_s"):
            samples = [getattr(of_rank[place], what)[1:] for of_rank in done.results]
            if all(samples):
                evidence.timed(f"{what.removesuffix('_s')} {case.name}", samples, warmup=1)
    evidence.figures(per_rank=rows, max_over_mean=max(rows) * mesh.ep / sum(rows))


@pytest.mark.claim("C4", "C8")
@pytest.mark.parametrize("name", PAGE)
def test_c4_c8_figures_of_known_routings_and_verdicts_on_them(name, figures, evidence):
    """The teaching page's triples, padding, a factor that binary rounding would raise, rows that stay at home."""
    known = PAGE[name]
    evidence.on("expert_routes", name=name)
    account = figures.account(known.plan(), known.routes, known.owners, **known.sizes())
    seen = {field: getattr(account, field) for field in known.expected}
    assert seen == known.expected, f"{name}: figures {seen}, expected {known.expected}"
    assert account.overflow + account.effective_tokens == sum(account.loads), f"{name}: routes are lost"
    verdict = figures.recommend(account)
    assert verdict == known.verdict, f"{name}: verdict {verdict}, expected {known.verdict}"
    evidence.measured(**dataclasses.asdict(account))


@pytest.mark.claim("C4")
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=STATELESS)
@given(
    routes=st.lists(st.lists(routes_of_a_token, max_size=9), min_size=1, max_size=4),
    seats=st.lists(st.integers(0, 3), min_size=6, max_size=6),
    factor=st.sampled_from([None, 0.3, 0.75, 1.0, 1.1, 2.0]),
)
def test_c4_figures_of_any_routing(figures, routes, seats, factor):
    """Counted route by route by the oracle, for any placement."""
    owners = [seat % len(routes) for seat in seats]
    plan = ExpertPlan(6, 3, capacity_factor=factor)
    account = dataclasses.asdict(figures.account(plan, routes, owners, width=4, element_bytes=2))
    expected = oracles.expert_figures.figures(routes, owners, factor, width=4, element_bytes=2)
    wrong = {name: (account[name], value) for name, value in expected.items() if account[name] != value}
    assert not wrong, f"figures differ (observed, expected): {wrong}"


@pytest.mark.claim("C4")
def test_c4_network_bytes_are_those_that_a_ledger_shows_leaving(ranks, subject, figures, evidence):
    """The account is made from the routes alone, the ledger from the calls; logical bytes stay apart."""
    evidence.on("expert_integers", mesh="ep4", dispatcher="all_to_all")
    done, judged = all_cases(ranks, subject, Mesh(ep=4), "all_to_all")
    for case, answer, _ in judged:
        if case.plan.capacity_scope == "rank":
            continue
        account = checks.expert.assert_network_bytes(done.ledgers, case, answer, figures)
        evidence.measured(**{case.name: dataclasses.asdict(account)})
        if case.name == "skewed_with_drops":
            rows = cases.rows_received(answer, case.mesh.ep)
            balance = max(rows) * len(rows) / sum(rows)
            evidence.figures(overflow=account.overflow, per_rank=rows, max_over_mean=balance)


@pytest.mark.claim("C5")
@on_meshes
def test_c5_bytes_follow_from_the_routes_and_nothing_else_is_sent(dispatcher, mesh, ranks, subject, evidence):
    """Counts, rows, answers, their gradients, partial sums over tp, the loss and parameters' gradients."""
    evidence.on("expert_integers", mesh=mesh.name(), dispatcher=dispatcher)
    done, judged = all_cases(ranks, subject, mesh, dispatcher)
    for rank, rows in enumerate(done.ledgers):
        lines = []
        for case, answer, _ in judged:
            exchange = subject.make("expert").exchange(case.plan)
            assert exchange.rows == dispatcher, f"{exchange.rows} is no {dispatcher}"
            lines += checks.expert.predicted(case, answer, rank, exchange)
        assert_ledger(rows, lines, where=done.where(rank))
        if rank == 0:
            evidence.predict(lines)


@pytest.mark.claim("C6")
@on_meshes_that_exchange
def test_c6_every_row_sent_is_expected_and_comes_back(dispatcher, mesh, ranks, subject):
    """Row sums of the routing matrix leave, column sums arrive; gradients take the same ways."""
    done, judged = all_cases(ranks, subject, mesh, dispatcher)
    for case, answer, _ in judged:
        checks.expert.assert_conservation(done.ledgers, case, answer)


@pytest.mark.claim("C7")
@pytest.mark.parametrize("mesh", [Mesh(ep=4), Mesh(dp=2, ep=2)], ids=Mesh.name)
def test_c7_the_mean_is_over_all_tokens_or_over_rank_means_as_asked(mesh, ranks, subject):
    """8, 4, 2 and 2 tokens and some padding: the two means differ, in value and in every gradient."""
    pairs = cases.answered(workloads.expert.normalised(mesh, NORMALISATIONS))
    assert pairs[0][1].loss != pairs[1][1].loss
    _, judged = run(ranks, subject, mesh, pairs)
    for case, answer, outcomes in judged:
        checks.expert.assert_loss(outcomes, case, answer)
        checks.expert.assert_gradients(outcomes, case, answer)


@pytest.mark.claim("C8")
@pytest.mark.parametrize(("overflow", "load", "cross", "verdict"), LIMITS)
def test_c8_verdicts_change_at_their_limits(overflow, load, cross, verdict, figures):
    """Each limit is inclusive, and the worst figure decides."""
    account = Account((3, 3), 3, overflow, 6, load, cross, 1 - cross, ((6,),), 0, 0, 0)
    found = figures.recommend(account)
    assert found == verdict, f"overflow {overflow}, load {load}, cross {cross}: {found}, expected {verdict}"


@pytest.mark.claim("C9")
def test_c9_plans_that_cannot_be_are_refused_before_anything_is_sent(ranks, subject):
    """Indivisible experts, no capacity, no owner, unknown words: on every rank."""
    mesh = Mesh(ep=3)
    bad = workloads.expert.refusable(mesh)
    done = ranks(3, deadline_s=DEADLINE_S).run(programs.expert.refusal, subject, mesh, list(bad.values()))
    for text, answers in zip(bad, zip(*done.results, strict=True), strict=True):
        checks.expert.assert_refused(done, text, answers)
    for rank, rows in enumerate(done.ledgers):
        assert rows == (), f"{done.where(rank)}: sent something before it refused"


@pytest.mark.claim("C9")
@pytest.mark.parametrize(
    ("disturb", "mesh", "text"),
    [("bad_id", Mesh(ep=4), "expert id out of range"), ("tp", Mesh(ep=2, tp=2), "route them differently")],
    ids=["expert_id_out_of_range", "tp_ranks_disagree"],
)
def test_c9_routes_that_cannot_be_are_refused_together(disturb, mesh, text, ranks, subject):
    """One rank alone would leave the others waiting; counts alone would not show two tokens changing places."""
    subject.require("expert.tp" if disturb == "tp" else "expert.replay")
    case = workloads.expert.case("disturbed", mesh, "scattered", ExpertPlan(8, 2), replay=disturb == "bad_id")
    done = ranks(4, deadline_s=DEADLINE_S).run(programs.expert.refusal, subject, mesh, [case], disturb)
    checks.expert.assert_refused(done, text, [answer for (answer,) in done.results])


@pytest.mark.claim("C9")
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_c9_figures_of_impossible_routings_are_refused(name, figures):
    """Also an id that Python would take as an index from the end."""
    routes, owners, text = IMPOSSIBLE[name]
    with pytest.raises(InvalidPlan, match=text):
        figures.account(ExpertPlan(2, 1), routes, owners, width=4, element_bytes=2)
