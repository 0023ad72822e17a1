"""`parproof compare`: exit status, table, Markdown, document; hostile words steer nothing, and no file is overwritten."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from parproof.cli import main
from parproof.commands.compare import COMMAND
from parproof.evidence.compare import gate
from parproof.evidence.schemas import violations

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
make = SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "make_comparison_fixtures.py")))
BASELINE, CANDIDATE = (
    sorted(map(str, make.FIXTURES.glob(f"{side}-*"))) for side in ("baseline", "candidate")
)
GAIN = ["compare", "--baseline", *BASELINE, "--candidate", *CANDIDATE, "--varies", "source"]
LOSS = ["compare", "--baseline", *CANDIDATE, "--candidate", *BASELINE, "--varies", "source"]


STATUSES = {
    "gain": (GAIN, 0),
    "gain_gated": ([*GAIN, "--fail-on", "regress"], 0),
    "loss": (LOSS, 0),
    "loss_gated": ([*LOSS, "--fail-on", "regress"], 1),
    "time": ([*LOSS, "--fail-on", "time"], 1),
    "other_kinds": ([*LOSS, "--fail-on", "correctness,traffic", "--fail-on", "level"], 0),
    "wide_threshold": ([*LOSS, "--fail-on", "time", "--threshold", "0.5"], 0),
    "undecided": (["compare", BASELINE[0], CANDIDATE[0], "--varies", "source", "--fail-on", "undecided"], 0),
    "undeclared": (["compare", BASELINE[0], CANDIDATE[0]], 2),
    "itself": (["compare", BASELINE[0], BASELINE[0]], 2),
    "one_side": (["compare", BASELINE[0]], 2),
    "nowhere": (["compare", BASELINE[0], "nowhere"], 2),
    "unknown_kind": ([*LOSS, "--fail-on", "everything"], 2),
    "nan": ([*LOSS, "--threshold", "nan"], 2),
    "alpha": ([*LOSS, "--alpha", "0"], 2),
    "from_alone": ([*LOSS[:-2], "--from", "a"], 2),
    "from_without_to": ([*LOSS[:-2], "--varies", "subject", "--from", "a"], 2),
    "unknown_experiment": ([*LOSS, "--experiment", "PAR-NONE"], 2),
    "experiment_not_there": ([*LOSS, "--experiment", "PAR-ZERO-STATE"], 2),
}


@pytest.mark.parametrize(("arguments", "status"), STATUSES.values(), ids=STATUSES)
def test_the_exit_status_is_the_answer(arguments, status, capsys):
    """0 fine, 1 a regression that was asked for, 2 not comparable: one account on stderr, no traceback."""
    assert main(arguments) == status
    printed = capsys.readouterr()
    assert (printed.out == "") == (status == 2)
    assert printed.err.startswith("parproof compare: ") == (status == 2)


def test_the_table_is_short_and_worst_first(capsys):
    """Verdict, factor, bounds; then what they cover and what not, the decision, and the gate."""
    main([*LOSS, "--fail-on", "regress"])
    printed = capsys.readouterr().out
    slower, same = (printed.index(word) for word in ("  slower  1.2", "  same    0.9"))
    assert slower < same
    for text in ("differs: source: 1111", "they do not cover what all runs of a side had in common"):
        assert text in printed
    assert "decision: reject: 1 timing is slower" in printed
    assert "gate: FAILED (fails on correctness, level, traffic, time; found 0 correctness" in printed


def test_one_run_a_side_says_what_its_bounds_do_not_cover(capsys):
    """And that it decides nothing."""
    main(["compare", BASELINE[0], CANDIDATE[0], "--varies", "source"])
    printed = capsys.readouterr().out
    assert "they do not cover how much runs differ by themselves" in printed
    assert "not shown: other workloads, machines and versions; run-to-run variation" in printed
    assert "decision: pending: 1 run on a side" in printed


def test_the_document_keeps_its_schema_binds_the_runs_and_comes_out_again(capsys):
    """The digest of each manifest; nothing of the clock or of this machine."""
    documents = []
    for _ in range(2):
        assert main([*GAIN, "--json"]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    assert documents[0] == documents[1]
    assert list(violations("comparison", documents[0])) == []
    digests = [json.loads((Path(p) / "manifest.json").read_text())["digest"] for p in BASELINE]
    assert [run["digest"] for run in documents[0]["baseline"]] == digests
    assert str(ROOT) not in json.dumps(documents[0])


@pytest.mark.parametrize("change", [{"decision": "accept"}, {"decision": "tune"}])
def test_the_schema_knows_no_acceptance_below_a_benchmark(change, capsys):
    """Whoever types it in breaks the schema."""
    main([*GAIN, "--json"])
    document = json.loads(capsys.readouterr().out)
    document["decision"] |= change | {"level": "cpu_process_group"}
    assert [text.split(":")[0] for text in violations("comparison", document)] == ["decision/level"]


def test_what_is_written_is_the_document_and_never_overwrites(tmp_path, capsys):
    """Nothing half-written stays, a link is not followed, and the printed form is free."""
    path = tmp_path / "comparison.json"
    assert main([*GAIN, "--markdown", "--output", str(path)]) == 0
    assert capsys.readouterr().out.startswith("## Comparison: accept\n")
    written = path.read_bytes()
    assert list(violations("comparison", json.loads(written))) == []
    assert main([*LOSS, "--output", str(path)]) == 2
    assert "never overwritten" in capsys.readouterr().err
    dangling = tmp_path / "link.json"
    os.symlink(tmp_path / "elsewhere.json", dangling)
    assert main([*GAIN, "--output", str(dangling)]) == 2
    assert main([*GAIN, "--output", str(tmp_path / "no" / "such.json")]) == 2
    assert path.read_bytes() == written
    assert sorted(p.name for p in tmp_path.iterdir()) == ["comparison.json", "link.json"]


def test_words_of_the_evidence_steer_neither_terminal_nor_markdown(tmp_path, capsys):
    """Names with escape codes, bars, back-ticks and HTML."""
    hostile = "test_c8[\x1b[2J|`<script>\u202e](http://x)"
    runs = [
        make.write(
            tmp_path / name,
            [make.outcome(hostile, "C8", times=[make.timing("a|`<b>", seed)], rows=make.ledger(size))],
            source=name,
        )
        for name, seed, size in (("0", 1, 64), ("1", 2, 65))
    ]
    arguments = ["compare", *map(str, runs), "--varies", "source"]
    assert main(arguments) == 0
    assert main([*arguments, "--markdown"]) == 0
    printed = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in printed)
    rows = [line for line in printed.splitlines() if line.startswith("| ") and "test_c8" in line]
    assert len(rows) == 2
    for row, columns in zip(rows, (4, 6), strict=True):
        assert row.replace("\\|", "").count("|") == columns + 1
        assert row.count("`") == 2


def test_a_refusal_prints_no_word_as_it_was_written(tmp_path, capsys):
    """Also the name of a field is somebody else's."""
    runs = [
        make.write(tmp_path / name, [make.outcome("test_c1", workload={"a\x1b[2J\u202e": value})])
        for name, value in (("0", "x\x1b]0;"), ("1", "y" * 5000))
    ]
    assert main(["compare", *map(str, runs)]) == 2
    printed = capsys.readouterr().err
    assert all(c.isprintable() or c == "\n" for c in printed)
    assert "workload.a\\x1b[2J\\u202e: baseline x\\x1b]0;, candidate yyy" in printed
    assert len(printed) < 2000


def test_sides_that_were_not_made_in_turn_are_told(tmp_path, capsys, monkeypatch):
    """All of one before all of the other: then time is a second factor."""
    runs = []
    for hour in range(1, 5):
        monkeypatch.setitem(make.write.__globals__, "CLOCK", f"2026-01-02T0{hour}:00:00.000000+00:00")
        outcomes = [make.outcome("test_c8", "C8", times=[make.timing("step", hour)])]
        runs.append(str(make.write(tmp_path / str(hour), outcomes)))
    told = []
    for order in ((0, 1, 2, 3), (2, 3, 0, 1), (0, 2, 1, 3)):
        one, two, three, four = (runs[place] for place in order)
        assert main(["compare", "--baseline", one, two, "--candidate", three, four]) == 0
        told.append("one side was made before the other" in capsys.readouterr().out)
    assert told == [True, True, False]


def test_the_command_needs_neither_torch_nor_pytest():
    """In an interpreter in which neither can be imported."""
    code = (
        "import sys; sys.modules['torch'] = sys.modules['pytest'] = None\n"
        f"from parproof.cli import main; sys.exit(main({GAIN!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_page_about_comparing_names_every_option_and_kind():
    """What the command knows, the page explains."""
    page = (ROOT / "docs" / "compare.md").read_text()
    options = [name for names, _ in COMMAND.arguments for name in names if name.startswith("--")]
    assert [o for o in (*options, *gate.KINDS, gate.UNDECIDED) if f"`{o}" not in page] == []
