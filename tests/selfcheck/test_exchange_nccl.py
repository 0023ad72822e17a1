"""nccl-tests, text and JSON: the numbers are checked against our cost model, to half a unit of what was printed."""

import json
from pathlib import Path

import pytest

from parproof.cli import main
from parproof.cost.collectives import bus_factor
from parproof.evidence.exchange.forms.nccl import OPERATIONS, Printed
from parproof.evidence.exchange.importing import describe, import_files

pytestmark = pytest.mark.selfcheck
EXAMPLES = Path(__file__).parents[2] / "fixtures" / "exchange" / "nccl"
TEXT = (EXAMPLES / "all_reduce.txt").read_text()


def assess(tmp_path, text):
    """The one assessment of a text."""
    path = tmp_path / "foreign"
    path.write_text(text)
    (imported,) = import_files([path])
    return imported.assessment


def ids(reasons):
    """Which reasons were given."""
    return {reason.id for reason in reasons}


@pytest.mark.parametrize(
    "name", ["all_reduce.txt", "all_reduce_old.txt", "prefixed.txt", "alltoall.txt", "all_reduce.json"]
)
def test_a_sound_table_is_supported_as_it_is(name, capsys):
    """New columns and old, behind a launcher's prefix, all-to-all that cannot be checked in place, JSON."""
    assert main(["import", str(EXAMPLES / name)]) == 0
    (imported,) = import_files([EXAMPLES / name])
    told = imported.assessment
    assert told.at_most()[0] == "gpu_smoke"
    assert {"one-host", "mean-only", "average-over-ranks", "synthetic-model"} <= ids(told.limits)
    assert told.plain_groups()["conclusion"]["correctness"] == "pass"
    assert "supports at most gpu_smoke" in capsys.readouterr().out


def test_text_and_json_of_one_run_say_the_same():
    """But for the digits that the text leaves out."""
    text, document = (
        import_files([EXAMPLES / f"all_reduce.{kind}"])[0].assessment for kind in ("txt", "json")
    )
    assert len(text.values) == len(document.values) == 6
    for ours, theirs in zip(text.values, document.values, strict=True):
        assert ours["bus_GBps"] == pytest.approx(theirs["bus_GBps"], abs=0.006)
        assert {**ours, "algorithm_GBps": 0, "bus_GBps": 0} == {**theirs, "algorithm_GBps": 0, "bus_GBps": 0}
    for group in ("communication", "conclusion"):
        assert text.plain_groups()[group] == document.plain_groups()[group]
    assert (
        text.plain_groups()["hardware"]["world_size"]
        == document.plain_groups()["hardware"]["world_size"]
        == 4
    )


WRONG = [
    ("algbw", "29.79", "59.58"),
    ("busbw", "44.68", "29.79"),
    ("busbw", "164.59", "219.45"),
    ("wrong-values", "44.68       0", "44.68       7"),
    ("out-of-bounds", "values : 0 OK", "values : 3 FAILED"),
    ("out-of-bounds", "values : 0 OK", "values : 2 OK"),
    ("avg-busbw", "Avg bus bandwidth    : ", "Avg bus bandwidth    : 1"),
    ("table-cut-short", "# Out of bounds values", "# nothing"),
    ("cpu-time", "root     time", "root  cputime"),
    ("not-positive", "  35.20", " -35.20"),
    ("row-unreadable", "   29.79", "     nan"),
]


@pytest.mark.parametrize(
    ("reason", "old", "new"), WRONG, ids=[f"{n}-{row[0]}" for n, row in enumerate(WRONG)]
)
def test_a_table_whose_numbers_do_not_hold_together_is_found(reason, old, new, tmp_path):
    """One number of it changed."""
    assert TEXT.count(old) >= 1
    told = assess(tmp_path, TEXT.replace(old, new))
    assert reason in ids(told.findings)
    assert told.at_most()[0] == ("gpu_smoke" if reason == "cpu-time" else "theoretical")


@pytest.mark.parametrize(
    ("limit", "old", "new"),
    [
        ("no-warm-up", "warmup iters: 5", "warmup iters: 0"),
        ("no-warm-up", "warmup iters: 5", "warmup iters: ?"),
        ("no-repeats", " iters: 20", " iters: 1"),
        ("collective-not-named", "all_reduce_perf", "my_own_perf"),
        ("group-size-unknown", "#  Rank", "#  Platz"),
        ("hosts-not-told", "#  Rank", "#  Platz"),
        ("accelerator-not-named", "#  Rank", "#  Platz"),
        ("values-unchecked", "       0\n", "     N/A\n"),
    ],
)
def test_what_a_table_does_not_tell_is_a_limit(limit, old, new, tmp_path):
    """No finding: it claims nothing of the kind."""
    told = assess(tmp_path, TEXT.replace(old, new))
    assert limit in ids(told.limits)
    assert told.findings == []


def test_what_nobody_compared_is_not_ok(tmp_path):
    """`-c 0` prints «0 OK» over columns of N/A."""
    told = assess(tmp_path, (EXAMPLES / "unchecked.txt").read_text())
    assert ids(told.findings) == {"unchecked-called-ok"}
    assert told.plain_groups()["conclusion"]["correctness"] == "not_evaluated"


def test_two_hosts_are_two(tmp_path):
    """By the lines of the ranks; and only then is one host no limit."""
    told = assess(tmp_path, TEXT.replace("on     node-a device  3", "on     node-b device  3"))
    assert told.plain_groups()["hardware"]["scope"] == "multi_host"
    assert "one-host" not in ids(told.limits)


def test_several_tables_in_one_file_are_told_apart(tmp_path):
    """As when a script runs one program after the other."""
    path = tmp_path / "log"
    path.write_text(
        "some noise: 8 2\n" + TEXT + (EXAMPLES / "alltoall.txt").read_text() + TEXT.partition("# Out of")[0]
    )
    found = [imported.assessment for imported in import_files([path])]
    assert [told.claims["program"] for told in found] == ["all_reduce", "alltoall", "all_reduce"]
    assert [ids(told.findings) for told in found] == [set(), set(), {"table-cut-short"}]


def test_bus_bandwidth_has_the_factor_of_some_operation(tmp_path):
    """Older tables do not name theirs; of two ranks it is 1 or a half."""
    old = (EXAMPLES / "all_reduce_old.txt").read_text()
    row = "10.68   10.68"
    assert row in old
    assert ids(assess(tmp_path, old.replace(row, "10.68   13.35")).findings) >= {"busbw"}
    assert "busbw" not in ids(assess(tmp_path, old.replace(row, "10.68    5.34")).findings)


def test_each_program_has_the_factor_of_our_cost_model(tmp_path):
    """A table of four ranks with that factor is sound, and with another it is not."""
    for program, operation in OPERATIONS.items():
        if operation is None:
            continue
        for factor in (1.5, 0.75, 1.0):
            text = table(program, factor)
            expected = set() if factor == float(bus_factor(operation, 4)) else {"busbw"}
            assert ids(assess(tmp_path, text).findings) == expected, (program, factor)


def table(program, factor):
    """One row, printed as the program prints it."""
    head = TEXT.partition("       65536")[0].replace("all_reduce_perf", f"{program}_perf")
    side = f"  {100.0:7.2f}  {10.486:6.2f}  {10.48576 * factor:6.2f}  {0:6d}"
    row = f"{1048576:12d}  {262144:12d}  {'float':>8}  {'sum':>6}  {-1:6d}{side}{side}"
    end = f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {10.48576 * factor:g}\n"
    return f"{head}{row}\n{end}"


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("35.20", 35.195, 35.205), ("12345", 12344.5, 12345.5), ("1.2e+07", 1.15e7, 1.25e7)],
)
def test_a_printed_number_stands_for_an_interval(text, low, high):
    """Half a unit of its last place to either side."""
    printed = Printed.of(text)
    assert (printed.low, printed.high) == pytest.approx((low, high))


@pytest.mark.parametrize("text", ["nan", "inf", "1_0", "0e400", "1" * 30, "", "-"])
def test_what_is_no_number_of_a_table_is_refused(text):
    """Python would take some of them."""
    with pytest.raises(ValueError, match=r"^"):
        Printed.of(text)


def read_json():
    """The example, to be changed."""
    return json.loads((EXAMPLES / "all_reduce.json").read_text())


@pytest.mark.parametrize(
    ("reason", "place", "value"),
    [
        ("algbw", ("out_of_place", "alg_bw"), 1.0),
        ("busbw", ("in_place", "bus_bw"), 1.0),
        ("wrong-values", ("in_place", "nwrong"), 2.0),
        ("not-finite", ("in_place", "time"), "nan"),
        ("not-positive", ("size",), "big"),
    ],
)
def test_json_rows_are_checked_as_the_text_is(reason, place, value, tmp_path):
    """One leaf of one row changed."""
    document = read_json()
    row = document["results"][1]
    (row if len(place) == 1 else row[place[0]])[place[-1]] = value
    assert reason in ids(assess(tmp_path, json.dumps(document)).findings)


def test_json_has_its_own_traps(tmp_path):
    """Errors of the run; unchecked values called okay; the slowest rank asked for; a run without an end."""
    assert "run-errors" in ids(
        assess(tmp_path, json.dumps(read_json() | {"errors": ["remote error"]})).findings
    )
    unchecked = read_json()
    for row in unchecked["results"]:
        row["out_of_place"]["nwrong"] = row["in_place"]["nwrong"] = None
    assert "unchecked-called-ok" in ids(assess(tmp_path, json.dumps(unchecked)).findings)
    slowest = read_json()
    slowest["args"] += ["-a", "3"]
    assert "average-over-ranks" not in ids(assess(tmp_path, json.dumps(slowest)).limits)
    cut = {name: value for name, value in read_json().items() if name != "average_bus_bandwidth"}
    assert "table-cut-short" in ids(assess(tmp_path, json.dumps(cut)).findings)


def test_the_environment_in_the_json_stays_there():
    """It may hold a token, and a companion is passed on."""
    (imported,) = import_files([EXAMPLES / "all_reduce.json"])
    assert "environment-kept-out" in ids(imported.assessment.limits)
    assert "not-to-be-copied" not in json.dumps(describe(imported))
