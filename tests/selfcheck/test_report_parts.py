"""What a report counts and draws follows from the records: matrix, ledgers, timelines, matrices of bytes, curves."""

import itertools
import json
import platform
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from parproof.cost import pipeline as cost
from parproof.cost.statistics import summarise
from parproof.evidence import ledger_summary
from parproof.evidence.record import build
from parproof.evidence.report import drawing, units
from parproof.evidence.report.curves import Curves
from parproof.evidence.report.matrix import Matrix
from parproof.evidence.report.pipeline import Pipelines, modelled
from parproof.evidence.report.tested import AttemptsByTest
from parproof.evidence.report.topology import Topology
from parproof.evidence.report.totals import Defect, Totals
from parproof.evidence.report.traffic import Heats

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import report_sample

pytestmark = pytest.mark.selfcheck


def records():
    """The sample's records, numbered."""
    return [build(outcome) | {"sequence": n} for n, outcome in enumerate(report_sample.outcomes())]


def seen_by(part, given=None):
    """A collector after it has seen records."""
    for record in records() if given is None else given:
        part.add(json.loads(json.dumps(record)))
    return part


def matrix_of(given=None):
    """A matrix that has seen records, and the tally that it counts by."""
    tested = seen_by(AttemptsByTest(), given)
    return seen_by(Matrix("en", tested.tally), given)


def test_a_cell_counts_by_status_and_is_green_only_where_everything_is_ok():
    """A skip or a known defect among passes changes the tone."""
    matrix = matrix_of()
    (group,) = [g for _, g in matrix.groups() if g.id == "PAR-NCCL-COLLECTIVE"]
    native = group.columns["cpu", "torch_native", report_sample.NATIVE["address"]]
    cell = group.cell(group.rows["C1"], native)
    assert dict(cell.by_status()) == {"ok": 1, "known": 1, "blocked": 1}
    assert cell.tone == "blocked"
    skipped = group.cell(group.rows["C1"], group.columns["cuda2", "", ""])
    assert (skipped.tone, skipped.by_level()) == ("skipped", [])
    assert group.cell(group.rows["C8"], native).tone == "ok"
    assert group.cell(group.rows["C9"], native).tone == "none"
    passed_and_skipped = group.cell(group.rows["C8"], native)
    passed_and_skipped.nodeids |= skipped.nodeids
    assert passed_and_skipped.tone == "part"


def test_a_record_of_several_claims_counts_in_each_and_once_in_the_total():
    """C1 and C7 share a run; the total of the experiment must not count it twice."""
    matrix = matrix_of(records()[:1])
    (group,) = [g for _, g in matrix.groups()]
    assert [group.cell(group.rows[c], 0).total for c in ("C1", "C7")] == [1, 1]
    assert group.total.total == 1
    assert "PAR-ZERO-STATE" in dict(matrix.absent())


def test_totals_tell_failures_from_known_defects_and_skips_from_both():
    """Five numbers; each failure with its words."""
    totals = seen_by(Totals(seen_by(AttemptsByTest())))
    assert totals.counts == {"ok": 7, "failed": 1, "known": 1, "blocked": 1, "skipped": 1}
    assert [(f["sequence"], f["status"], f["rank"]) for f in totals.failures] == [
        (1, "failed", 0),
        (3, "blocked", None),
    ]
    assert list(totals.skips) == [("2 CUDA GPUs", "0", "run it on a machine with 2 or more GPUs")]


@pytest.mark.parametrize(
    ("report", "address"),
    [
        ("pytorch#192920", "https://github.com/pytorch/pytorch/issues/192920"),
        ("pytorch PR#191187", "https://github.com/pytorch/pytorch/issues/191187"),
        ("unreported", None),
        ("javascript:alert(1)#1", None),
        ("pytorch#1/../../evil", None),
        ("pytorch#1\n", None),
    ],
)
def test_only_a_report_of_a_known_form_becomes_a_link(report, address):
    """The name comes from a record, and a record may say anything."""
    assert Defect(report).address == address


def test_ledger_and_prediction_stand_side_by_side_and_agree_as_the_audit_says():
    """What was predicted and not seen, seen and not predicted, and control traffic that may be left out."""
    line = {"dtype": "float32", "group_size": 2, "phase": "", "control": False, "ranks": [0, 1]}
    amounts = {"calls": 1, "in_bytes": 8, "out_bytes": 8}
    seen = [
        line | amounts | {"op": "all_reduce"},
        line | amounts | {"op": "broadcast"},
        line | amounts | {"op": "barrier", "control": True},
    ]
    wanted = {"dtype": "", "group_size": 2, "phase": "", "members": []}
    predicted = {"rank": 0, "within": [], "lines": [wanted | amounts | {"op": "all_reduce", "in_bytes": 4}]}
    found = {c.op: (c.predicted, c.measured, c.agrees) for c in ledger_summary.compared(seen, predicted)}
    assert found == {
        "all_reduce": ([1, 4, 8], [1, 8, 8], False),
        "broadcast": (None, [1, 8, 8], False),
        "barrier": (None, [1, 8, 8], True),
    }
    assert not ledger_summary.agrees(seen, predicted)
    predicted["lines"] = [wanted | amounts | {"op": op} for op in ("all_reduce", "broadcast")]
    assert ledger_summary.agrees(seen, predicted)


@pytest.mark.parametrize("schedule", ["zero_bubble_v", "dual_pipe_v"])
def test_a_modelled_v_has_whole_backwards_of_two_slots(schedule):
    """Where some backwards are split, a whole one is as long as both parts: 6m + p − 1 slots, no bubble but the start."""
    chart = modelled(schedule, 3, 6)
    assert chart.makespan == 6 * 6 + 3 - 1
    assert {bar.end - bar.start for bar in chart.bars if bar.kind == "B"} <= {2.0}


@pytest.mark.parametrize("schedule", ["fill_drain", "one_f_one_b"])
@pytest.mark.parametrize(("p", "m"), [(2, 4), (3, 8), (4, 4)])
def test_a_modelled_timeline_has_the_makespan_and_bubble_of_the_closed_form(schedule, p, m):
    """Every event once, no two of a rank at a time, and live activations as the model of the experiment says."""
    chart = modelled(schedule, p, m)
    assert not chart.observed
    assert chart.makespan == cost.training_slots(p, m)
    assert chart.bubble == pytest.approx(float(cost.bubble_ratio(p, m)), abs=1e-12)
    assert len({(b.kind, b.stage, b.micro) for b in chart.bars}) == len(chart.bars) == 2 * p * m
    for rank in range(p):
        mine = [bar for bar in chart.bars if bar.rank == rank]
        assert all(a.end <= b.start for a, b in itertools.pairwise(mine))
    assert chart.model_live == [cost.peak_live(schedule, p, m, rank) for rank in range(p)]
    drawn = drawing.gantt(chart)
    assert max(b.x + b.width for b in drawn.blocks) <= drawn.width


def test_a_timeline_is_observed_only_where_the_record_has_the_times():
    """The clock starts anywhere; the share of idle time follows from the intervals."""
    observed, *models = seen_by(Pipelines()).charts()
    assert (observed.observed, observed.sequences, observed.schedule) == (True, [8], "fill_drain")
    assert min(bar.start for bar in observed.bars) == 0
    assert observed.makespan == pytest.approx(0.059)
    assert observed.bubble == pytest.approx(1 - 8 * 0.009 / (2 * 0.059))
    assert [(m.observed, m.schedule) for m in models] == [(False, "one_f_one_b"), (False, "fill_drain")]
    assert models[0].live == [2, 2]


@pytest.mark.parametrize(
    "events",
    [None, [], [[], []], "F", [[["F", "start", 0, 0, 1.0]], []], [[["X", "start", 0, 0, 1]] * 2, [1, None, "a"]],
     [[["F", "start", 0, 0, 2.0], ["F", "end", 0, 0, 1.0]], []]],
    ids=["none", "empty", "silent", "text", "endless", "nonsense", "backwards"],
)  # fmt: skip
def test_what_is_no_account_of_events_is_not_drawn_as_one(events):
    """Anybody can write a measurement of this name."""
    (record,) = [r for r in records() if "events" in r["measurements"]]
    record["measurements"]["events"] = events
    assert [chart.observed for chart in seen_by(Pipelines(), [record]).charts()] == [False]


def test_bytes_from_rank_to_rank_are_routes_times_the_bytes_of_one_or_what_two_ranks_sent():
    """Eleven bytes a route; 2 ranks can only mean each other."""
    routes, ledger = seen_by(Heats()).charts()
    assert (routes.kind, routes.num_bytes) == ("routes", [[22, 33], [11, 44]])
    assert (routes.num_crossing, routes.num_staying) == (44, 66)
    assert (ledger.kind, ledger.num_bytes, ledger.sequences) == ("ledger", [[0, 128], [384, 0]], [7, 8])
    assert [ledger.shade(n) for n in (0, 1, 128, 384)] == [0, 1, 2, 5]


def test_messages_among_more_than_two_ranks_are_not_guessed():
    """The lines of a ledger do not name the receiver."""
    (record, _) = [r for r in records() if any(x["op"] == "send" for x in r["communication"]["ledger"] or ())]
    record["topology"]["world_size"] = 3
    heats = seen_by(Heats(), [record])
    assert (heats.charts(), heats.num_without_peers) == ([], 1)


def test_curves_are_computed_again_from_the_samples_and_a_bad_fit_is_refused():
    """Median of the slowest rank in each repeat; bus bandwidth by the factor; a model or the reason for none."""
    (curve,) = seen_by(Curves()).charts()
    fits, refused = curve.series
    (record,) = [r for r in records() if r["sequence"] == fits.sequence]
    for point, timed in zip(fits.points, record["time"]["measured"], strict=True):
        assert point.time == summarise(timed["samples_s"])
        assert point.bus_GBps == pytest.approx(point.size / point.time.median_s / 1e9)
    assert fits.model.relative_residual < 0.15
    assert fits.refused == ""
    assert refused.model is None
    assert "%" in refused.refused
    plot = drawing.plot(curve, drawing.times)
    assert [bool(line.model) for line in plot.lines] == [True, False]
    for mark in plot.lines[0].marks:
        assert plot.top <= mark.p95 <= mark.y <= plot.bottom
        assert mark.high <= mark.y <= mark.low


def test_a_timing_of_what_failed_is_not_read():
    """Correctness first."""
    given = [r for r in records() if r["time"]["measured"]]
    given[0]["conclusion"]["status"] = "failed"
    (curve,) = seen_by(Curves(), given).charts()
    assert [series.sequence for series in curve.series] == [given[1]["sequence"]]


def test_a_map_shows_each_placement_once_and_says_that_links_were_not_probed():
    """Emulated hosts are two boxes of one machine, and are called emulated."""
    large, small = seen_by(Topology()).maps()
    assert (large.host_kind, [host[:2] for host in large.hosts()]) == (
        "emulated",
        [("host0", platform.node()), ("host1", platform.node())],
    )
    assert (len(small.seats), small.links, small.count) == (2, None, 7)


@pytest.mark.parametrize(
    ("written", "expected"),
    [(units.seconds(1.5e-3), "1.5 ms"), (units.seconds(2e-7), "0.2 µs"), (units.size(1 << 20), "1 MiB"),
     (units.size(1000), "1000 B"), (units.percent(float(Fraction(1, 5))), "20.0 %"), (units.digits(0.000123), "0.000123")],
)  # fmt: skip
def test_numbers_are_written_in_units_that_people_read(written, expected):
    """Three digits, and the unit."""
    assert written == expected
