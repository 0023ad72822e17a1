"""A report of tests with several attempts, and of merged shards: each test counts once, and nothing is said of one run."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from parproof.cli import main
from parproof.evidence.attempts import numbered
from parproof.evidence.audit import audit
from parproof.evidence.record import build
from parproof.evidence.report import Words, collect, gather, html, markdown
from parproof.evidence.report.matrix import Matrix
from parproof.evidence.report.tested import AttemptsByTest
from parproof.evidence.report.totals import MAX_ROWS, Totals
from parproof.evidence.report.words import LANGUAGES, catalogue

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import report_sample

pytestmark = pytest.mark.selfcheck
FIXTURES = Path(__file__).parents[2] / "fixtures" / "evidence"
FLAKY = "tests/mechanisms/test_nccl_collective.py::test_c1[native]"
SHARDS = ("a" * 32, "b" * 32)
OF_ONE_RUN = ("limits.one_run", "limits.no_cross_node", "limits.no_decision", "verify.digest")


def contents(name, lang="en"):
    """What a report of a fixture says."""
    return collect(gather(FIXTURES / name), Words(lang))


def plain(page):
    """The page without scripts, style and tags, blanks as one."""
    shown = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", shown).split())


def attempts(*changes):
    """Attempts of one test: the sample's first record with other conclusions and subjects."""
    first = json.loads(json.dumps(build(report_sample.outcomes()[0])))
    for place, (subject, conclusion) in enumerate(changes):
        identity = first["identity"] | {"subject": first["identity"]["subject"] if subject else None}
        end = first["conclusion"] | conclusion
        yield first | {"sequence": place, "identity": identity, "conclusion": end} | numbered(place + 1)


def counted(records):
    """Tests, totals and matrix that have seen them."""
    tested = AttemptsByTest()
    totals, matrix = Totals(tested), Matrix("en", tested.tally)
    for record in records:
        tested.add(record)
        totals.add(record)
        matrix.add(record)
    return tested, totals, matrix


def test_totals_levels_and_cells_count_as_the_audit_does():
    """Seven records of six tests; the audit has 3 ok, 2 failed (one of them known), 1 skipped."""
    found, told = contents("merged"), audit(FIXTURES / "merged")
    counts = found.totals.counts
    assert told.counts == {"ok": 3, "failed": 2, "skipped": 1}
    assert counts == {"ok": 3, "failed": 1, "known": 1, "skipped": 1}
    assert dict(found.totals.by_level()) == told.levels
    assert (found.totals.num_records, found.tested.num_tests) == (7, 6)
    (group,) = [group for _, group in found.matrix.groups() if group.id == "PAR-NCCL-COLLECTIVE"]
    assert dict(group.total.by_status()) == {"ok": 2, "failed": 1, "known": 1, "skipped": 1}
    cell = group.cell(group.rows["C1"], 0)
    assert (dict(cell.by_status()), cell.tone) == ({"ok": 1, "failed": 1, "known": 1}, "failed")


def test_a_cell_is_not_green_because_the_worse_attempt_stands_in_another():
    """Skipped before it had a subject, then ok with one."""
    why = {"requirement": "2 CUDA GPUs", "found": "0", "how": "", "reason": "none"}
    skipped = {"status": "skipped", "skip": why, "evidence_level": None}
    _, totals, matrix = counted(attempts((False, skipped), (True, {})))
    assert totals.counts == {"skipped": 1}
    (group,) = [group for _, group in matrix.groups()]
    assert [cell.tone for cell in group.cells.values()] == ["skipped"] * len(group.cells)
    assert group.total.total == 1


def test_the_worst_attempt_is_the_one_that_is_told_among_the_failures():
    """Blocked, then failed: one row, with the failure; beyond the rows that fit tests are still counted."""
    told = {"type": "AssertionError", "message": "wrong", "rank": 0, "phase": "call"}
    blocked, failed = ({"status": status, "failure": told} for status in ("blocked", "failed"))
    tested, totals, _ = counted(attempts((True, blocked), (True, failed), (True, {})))
    assert [(row["sequence"], row["status"]) for row in totals.failures] == [(1, "failed")]
    assert (totals.num_failures, tested.num_flaky) == (1, 1)
    (record,) = attempts((True, failed))
    names = [record["identity"] | {"nodeid": f"a.py::test[{n}]"} for n in range(MAX_ROWS + 5)]
    _, totals, _ = counted(record | {"identity": identity} for identity in names)
    assert (len(totals.failures), totals.num_failures) == (MAX_ROWS, MAX_ROWS + 5)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_flaky_test_is_named_with_all_its_attempts(lang):
    """Counted in the first section, named below the findings, and so in Markdown."""
    found, words = contents("merged", lang), Words(lang)
    text, summary = plain(html(found, words)), markdown(found, words)
    for told in (text, summary):
        assert words("limits.flaky", n=1) in told
        place = told.index(words("flaky.some", n=1))
        assert told.index(words("findings.none")) < place < told.index(words("totals.worst"))
        here = told[place : told.index(words("totals.worst"))]
        assert FLAKY in here
        assert here.index(words("status.failed")) < here.index(words("status.ok"))
        assert [shard[:8] in here for shard in SHARDS] == [True, True]
    steady = markdown(contents("good", lang), words)
    assert words("flaky.heading") not in steady


@pytest.mark.parametrize("lang", LANGUAGES)
def test_merged_evidence_is_not_spoken_of_as_one_run(lang):
    """Its shards and every difference of the manifest are shown; what is said of one run is said of one run only."""
    words = Words(lang)
    found, single = contents("merged", lang), contents("good", lang)
    of_shards, of_one = (plain(html(c, words)) + markdown(c, words) for c in (found, single))
    for key in OF_ONE_RUN:
        assert words(key) not in of_shards
        assert words(key) in of_one
        if key.startswith("limits."):
            assert words(f"{key}.merged", shards=2) in of_shards
            assert words(f"{key}.merged", shards=2) not in of_one
    manifest = json.loads((FIXTURES / "merged" / "manifest.json").read_text())
    assert len(manifest["merged"]["differences"]) == 3
    for told in (*manifest["merged"]["differences"], *SHARDS):
        assert of_shards.count(told) >= 2
    assert catalogue(lang)["environment.differs"] not in of_one


def test_a_record_tells_its_attempt_its_shard_and_its_provenance():
    """In its detail as in the file; the index says which records are of one test."""
    found = contents("merged")
    index = found.packed.index(found.matrix)
    assert [row[10] for row in index["rows"]] == [1, 1, 1, 1, 1, 1, 2]
    assert index["rows"][0][9] == index["rows"][6][9]
    assert len({row[9] for row in index["rows"]}) == 6
    found = contents("merged")
    lines = (FIXTURES / "merged" / "records.jsonl").read_text().splitlines()
    for detail, record in zip(found.packed._details, map(json.loads, lines), strict=True):
        assert (detail["origin"], detail["provenance"]) == (record["origin"], record["provenance"])


def test_where_the_audit_stops_at_the_manifest_its_tests_are_still_counted(tmp_path):
    """The audit's own tally is empty then; the page shows the records all the same, and that they are of shards."""
    shutil.copytree(FIXTURES / "merged", tmp_path / "broken")
    (tmp_path / "broken" / "manifest.json").write_text("{}")
    evidence = gather(tmp_path / "broken")
    assert evidence.result.tally.worst == {}
    found = collect(evidence, Words("en"))
    assert found.totals.counts == {"ok": 3, "failed": 1, "known": 1, "skipped": 1}
    assert found.shards == list(SHARDS)
    assert catalogue("en")["limits.one_run"] not in plain(html(found, Words("en")))


def test_junit_of_every_shard_is_compared(tmp_path, capsys):
    """Both agree; the one that is named first is not passed over."""
    head, _, rest = (FIXTURES / "junit" / "good.xml").read_text().partition("</testcase>\n")
    first, second = tmp_path / "a.xml", tmp_path / "b.xml"
    second.write_text(f"{head}</testcase></testsuite></testsuites>")
    failed = head.replace('value="ok"', 'value="failed"').replace("</properties>", "</properties><failure />")
    first.write_text(f"{failed}</testcase>\n{rest}")
    wrong = tmp_path / "wrong.xml"
    wrong.write_text(first.read_text().replace("cpu_simulation", "real_benchmark"))
    for number, (given, status) in enumerate([(first, 0), (wrong, 1)]):
        options = [
            "--junit",
            str(given),
            "--junit",
            str(second),
            "--markdown",
            str(tmp_path / f"{number}.md"),
        ]
        assert main(["report", str(FIXTURES / "merged"), *options]) == status
    assert "`junit-agrees`" in (tmp_path / "1.md").read_text()
    assert "7 records of 6 tests shown; 0 findings" in capsys.readouterr().out
