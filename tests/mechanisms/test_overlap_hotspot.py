"""PAR-OVERLAP-HOTSPOT: which communication lengthens a step, and what to change next.

Question   How much communication does no compute cover, and which change is worth testing?
Baseline   serial: the sum is waited for, then the work is done.
Candidate  --subject: work done while the sum is under way; time lines read into overlap, exposed time and advice.
Claims     C1  overlap, exposed time, ratio and hotspot equal a count of covered time, whatever the intervals.
           C2  advice is the first rule that holds, at and on both sides of every boundary.
           C3  serial and overlapped give equal results, and send the same.
           C4  overlapped work runs while the sum is under way; serial work only after it.
           C5  a profiler trace of a real run, opened again, yields the intervals that the run had.
           C6  intervals and traces that cannot be are refused.
Not shown  overlap of a GPU's copy engines or NCCL kernels (there is a cpu lane only); how much a framework's own step gains; any absolute time.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parproof import programs
from parproof.checks import assert_exact, assert_ledger, overlap
from parproof.cost.trace import common_origin_ns, read_trace
from parproof.cost.traffic import Traffic
from parproof.errors import InvalidPlan, UsageError
from parproof.oracles import overlap as oracle
from parproof.subjects.overlap_protocol import Communication, Hotspot
from parproof.workloads.overlap import BOUNDARIES, page_hotspots, page_time_line

pytestmark = [pytest.mark.experiment("PAR-OVERLAP-HOTSPOT"), pytest.mark.lanes("cpu")]

both_ways = pytest.mark.parametrize("overlapped", [False, True], ids=["serial", "overlapped"])
an_interval = st.tuples(st.integers(0, 30), st.integers(0, 12)).map(
    lambda t: (float(t[0]), float(t[0] + t[1]))
)
STEPS = 3
OPS = ["all_reduce", "all_to_all", "broadcast"]
a_call = st.builds(
    lambda op, span, size: Communication(op, *span, size),
    st.sampled_from(OPS),
    an_interval,
    st.integers(0, 99),
)


@pytest.fixture
def analyst(subject):
    """The subject's reading of time lines."""
    subject.require("overlap.summarize")
    return subject.make("overlap")


@pytest.mark.claim("C1")
def test_c1_the_page_time_line(analyst, evidence):
    """Total 3.7, overlap 2.3, exposed 1.4; all_reduce twice, 160 KiB, 1.0 exposed: the hotspot. Compute twice in [2, 3] covers it once."""
    evidence.on("synthetic_timeline", source="page")
    found = analyst.summarize(*page_time_line())
    figures = [found.total_ms, found.overlap_ms, found.exposed_ms, found.by_op["all_reduce"].exposed_ms]
    assert figures == pytest.approx([3.7, 2.3, 1.4, 1.0], abs=1e-12), f"time line: {figures}"
    assert (found.by_op["all_reduce"].count, found.by_op["all_reduce"].payload_bytes) == (2, 160 * 1024)
    assert found.hotspot == "all_reduce", f"time line: hotspot {found.hotspot}"
    twice = analyst.summarize([Communication("all_reduce", 1.0, 5.0)], [(0.0, 3.0), (2.0, 4.0)])
    assert (twice.overlap_ms, twice.exposed_ms) == (3.0, 1.0), f"time line: {twice}"


@pytest.mark.claim("C1")
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(calls=st.lists(a_call, max_size=6), compute=st.lists(an_interval, max_size=6))
def test_c1_any_time_line_equals_a_count_of_covered_cells(analyst, calls, compute):
    """Overlapping, nested, touching and empty intervals; nothing is counted twice, nothing is negative."""
    found = analyst.summarize(calls, compute)
    counts = [(call, *oracle.count_cells(call.start_ms, call.end_ms, compute)) for call in calls]
    total, covered = sum(c[1] for c in counts), sum(c[2] for c in counts)
    ratio = covered / total if total else 0.0
    observed = (found.total_ms, found.overlap_ms, found.exposed_ms, found.overlap_ratio)
    assert observed == pytest.approx((total, covered, total - covered, ratio)), f"time line: {observed}"
    exposed = {op: sum(n - c for call, n, c in counts if call.op == op) for op in {call.op for call in calls}}
    assert {op: s.exposed_ms for op, s in found.by_op.items()} == pytest.approx(exposed), "time line: by_op"
    if exposed:
        assert exposed[found.hotspot] == max(exposed.values()), (
            f"time line: hotspot {found.hotspot} of {exposed}"
        )
    else:
        assert found.hotspot is None


@pytest.mark.claim("C1")
@pytest.mark.parametrize(
    ("elapsed", "expected"), [([10, 10], 0.0), ([8, 12], 0.4), ([1, 1, 4], 1.5), ([0, 0], 0.0)]
)
def test_c1_imbalance_is_the_range_over_the_mean(elapsed, expected, analyst):
    """Not over the largest, and no division by zero."""
    assert analyst.rank_imbalance(elapsed) == pytest.approx(expected), f"time line: imbalance of {elapsed}"


@pytest.mark.claim("C2")
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_c2_advice_at_every_boundary(boundary, analyst):
    """Thresholds are strict as stated; exposed time of exactly 5 ms is accepted."""
    spot = Hotspot(*BOUNDARIES[boundary])
    found = analyst.mitigate([spot])
    expected = oracle.first_action(*BOUNDARIES[boundary])
    assert found.action == expected, f"advice: {found.action}, expected {expected}"
    measured = oracle.NEXT_MEASUREMENTS[expected]
    assert ", ".join(found.measure) == measured, f"advice: measure {found.measure}, expected {measured}"
    decision = "accept" if spot.exposed_ms <= 5.0 else "tune"
    assert found.decision == decision, f"advice: {found.decision}, expected {decision}"


@pytest.mark.claim("C2")
def test_c2_calls_of_one_collective_are_pooled(analyst):
    """Summed, broadcast overtakes; its smallest overlap and largest imbalance count. Nothing measured: collect."""
    spots = [
        Hotspot("all_to_all", 10.0, 65536, 0.60, 0.0),
        Hotspot("broadcast", 6.0, 100, 0.90, 0.1),
        Hotspot("broadcast", 6.0, 100, 0.80, 0.0),
    ]
    found = analyst.mitigate(spots)
    assert (found.priority, found.action) == ("broadcast", "inspect_collective_payload_and_schedule"), (
        f"advice: {found}"
    )
    low = [Hotspot("broadcast", 6.0, 100, overlap, 0.0) for overlap in (0.9, 0.1)]
    assert analyst.mitigate(low).action == "increase_overlap_or_delay_sync", "advice: smallest overlap"
    skewed = [Hotspot("broadcast", 6.0, 100, 0.9, imbalance) for imbalance in (0.0, 0.3)]
    assert analyst.mitigate(skewed).action == "rebalance_ranks_or_experts", "advice: largest imbalance"
    nothing = analyst.mitigate([])
    assert (nothing.action, nothing.decision) == ("collect_trace", "collect_more_evidence"), (
        f"advice: {nothing}"
    )
    assert nothing.measure, "advice: nothing to measure next"


@pytest.mark.claim("C2")
@pytest.mark.parametrize(
    ("ratios", "action"),
    [
        ({}, "reduce_routing_traffic"),
        ({"rank_imbalance": 0.35}, "rebalance_ranks_or_experts"),
        ({"overlap_ratio": 0.10}, "increase_overlap_or_delay_sync"),
        ({"overlap_ratio": 0.10, "rank_imbalance": 0.35}, "rebalance_ranks_or_experts"),
    ],
    ids=["as_is", "imbalance", "overlap", "both"],
)
def test_c2_the_page_hotspots(ratios, action, analyst):
    """all_to_all with 20 ms goes before all_reduce with 8 + 6 and broadcast with 5; imbalance of 0.35 beats all."""
    found = analyst.mitigate(page_hotspots(**ratios))
    assert (found.priority, found.action, found.decision) == ("all_to_all", action, "tune"), (
        f"advice: {found}"
    )


@pytest.mark.claim("C3", "C4")
@both_ways
@pytest.mark.parametrize("world", [2, 3], ids="W{}".format)
def test_c3_c4_results_are_equal_and_the_order_is_as_said(world, overlapped, ranks, subject, evidence):
    """The others enter the sum once rank 0 has worked (a subject that waits first never gets there), or 20 ms late."""
    program = programs.overlap
    run = ranks(world, deadline_s=5).run(program.choreographed, subject, overlapped)
    total = sum(program.bucket_of(rank) for rank in range(world))
    size = 8 * program.BUCKET_ELEMENTS
    for rank, found in enumerate(run.results):
        assert_exact(found["total"], total, where=run.where(rank), what="sum")
        assert_exact(found["computed"], program.some_work(rank), where=run.where(rank), what="work")
        assert_ledger(run.ledgers[rank], [Traffic("all_reduce", 1, size, size, world)], where=run.where(rank))
        assert found["calls_before_work"] == 1, (
            f"{run.where(rank)}: {found['calls_before_work']} calls before the work"
        )
    marks = [found["marks"] for found in run.results]
    overlap.assert_order(marks, overlapped=overlapped)
    evidence.on("choreographed_exchange", overlapped=overlapped, world=world)
    evidence.measured(observed_order=sorted(marks[0], key=marks[0].get))


@pytest.fixture
def traces(ranks, subject, tmp_path, evidence):
    """(run, what its traces hold) of two traced ranks; run once for all claims about it."""

    def made(overlapped):
        run, reads = ranks(2, deadline_s=10).run_once(programs.overlap.traced, subject, overlapped, STEPS), []
        for rank, found in enumerate(run.results):
            path = tmp_path / f"rank{rank}.trace.json"
            path.write_bytes(found["trace"])
            evidence.keep_trace(path)
            reads.append(read_trace(path, programs.overlap.COMPUTE))
        evidence.on("traced_exchange", overlapped=overlapped, steps=STEPS)
        return run, reads

    return made


def record(evidence, counts, reads):
    """What was counted goes into the record, whether or not the subject reads time lines."""
    evidence.figures(**overlap.figures(counts))
    evidence.measured(**overlap.measurements(counts, reads))


@pytest.mark.claim("C5")
@both_ways
def test_c5_a_trace_opened_again_yields_the_intervals_of_the_run(overlapped, traces, evidence):
    """The ledger's calls; starts and ends as in memory, between the ranks' own moments; only overlapped overlaps."""
    run, reads = traces(overlapped)
    for rank, (read, found) in enumerate(zip(reads, run.results, strict=True)):
        assert (read.rank, read.world_size) == (rank, 2), f"{run.where(rank)}: trace of rank {read.rank}"
        rows = [row for row in run.ledgers[rank] if row.phase == "traced"]
        calls = ["broadcast", "all_reduce"] * STEPS
        overlap.assert_calls(read, rows, calls, len(calls), where=run.where(rank))
        overlap.assert_as_in_memory(read, found["events"], where=run.where(rank))
    moments = [found["moments"] for found in run.results]
    overlap.assert_between_the_moments(reads, moments, overlapped=overlapped)
    overlap.assert_only_overlapped_overlaps(reads, overlapped=overlapped)
    record(evidence, overlap.counts(run, reads), reads)


@pytest.mark.claim("C1")
@both_ways
def test_c1_measured_time_lines_equal_a_count_of_covered_time(overlapped, analyst, traces, evidence):
    """The intervals of both ranks of a real run, on one clock; bytes from the ledger."""
    run, reads = traces(overlapped)
    origin_ns = common_origin_ns(reads)
    payloads, counts = overlap.payloads(run), overlap.counts(run, reads)
    for rank, read in enumerate(reads):
        overlap.assert_summary(analyst, read, payloads[rank], origin_ns, where=run.where(rank))
    imbalance = overlap.assert_imbalance(analyst, reads, origin_ns)
    evidence.measured(action=overlap.assert_advice(analyst, counts, imbalance))
    record(evidence, counts, reads)


@pytest.mark.claim("C6")
def test_c6_time_does_not_run_backwards(analyst):
    """Neither compute nor communication may end before it starts."""
    with pytest.raises(InvalidPlan, match="interval from"):
        analyst.summarize([Communication("all_reduce", 2.0, 1.0)], [])
    with pytest.raises(InvalidPlan, match="interval from"):
        analyst.summarize([], [(2.0, 1.0)])


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"traceEvents": []}', '{"traceEvents": [{"ph": "X", "ts": 1'],
    ids=["nothing", "a_list", "no_events", "empty", "cut_off"],
)
def test_c6_what_is_no_trace_is_refused(text, tmp_path):
    """An empty, foreign or cut-off file is named, not read as a run without communication."""
    path = tmp_path / "some.trace.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"some\.trace\.json"):
        read_trace(path, "compute")
