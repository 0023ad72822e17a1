"""The page of a report without a browser: order, honesty, what it says of bad evidence, and what it may fetch."""

import base64
import hashlib
import html.parser
import itertools
import json
import re
import sys
from pathlib import Path

import pytest

from parproof.cli import main

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures" / "evidence"
VOID = {"meta", "link", "br", "rect", "line", "circle", "path", "polyline", "input"}
SECTIONS = (
    "limits findings totals matrix records pipeline traffic curves environment rules verify".split()  # noqa: SIM905
)


class Page(html.parser.HTMLParser):
    """Elements in order with their attributes, text by the id of the section it stands in, scripts by id."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.scripts, self.open = [], {}, {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Keep the element; void ones are not opened."""
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        """Every element that was opened is closed, in turn."""
        if tag not in VOID:
            assert self.open.pop()[0] == tag

    def handle_data(self, data):
        """By the innermost element with an id, and by the section."""
        for tag, attrs in self.open:
            if tag == "section" and attrs.get("id") in (*SECTIONS, "verdict"):
                self.texts[attrs["id"]] = self.texts.get(attrs["id"], "") + data
        if self.open and self.open[-1][0] in ("script", "style"):
            tag, attrs = self.open[-1]
            self.scripts[attrs.get("id", tag)] = data

    def of(self, tag):
        """Attributes of all elements of a kind."""
        return [attrs for name, attrs in self.elements if name == tag]


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """Evidence with one of everything."""
    sys.path.insert(0, str(ROOT / "tools"))
    import report_sample

    path = tmp_path_factory.mktemp("sample") / "evidence"
    report_sample.write(path, report_sample.outcomes())
    return path


@pytest.fixture
def page(tmp_path):
    """A report as a parsed page, with the exit status of the command as `.status`."""

    def made(directory, *options):
        output = tmp_path / f"{len(list(tmp_path.iterdir()))}.html"
        status = main(["report", str(directory), "--output", str(output), *options])
        found = Page(output.read_text("utf-8"))
        assert found.open == []
        found.status = status
        return found

    return made


def test_what_does_not_follow_comes_first_and_every_part_in_its_order(page, sample):
    """A reader who stops early has read the limits."""
    found = page(sample)
    ids = [attrs.get("id") for attrs in found.of("section")]
    assert [name for name in ids if name in SECTIONS] == SECTIONS
    limits = found.texts["limits"]
    assert limits.index("What does not follow from it") < limits.index("What it is")
    for text in ("no record reaches the level real_benchmark", "a skip is not a pass", "made up"):
        assert text in limits
    assert found.status == 0
    assert "verdict" not in found.texts


# One directory a rule; those of a second way to break it are named «rule--way».
@pytest.mark.parametrize("rule", sorted(p.name for p in (FIXTURES / "bad").iterdir() if "--" not in p.name))
def test_bad_evidence_is_shown_under_a_banner_and_ends_with_1(rule, page):
    """The finding is on the page, and nobody can miss that it is there."""
    found = page(FIXTURES / "bad" / rule)
    assert found.status == 1
    assert "does not pass its audit" in found.texts["verdict"]
    assert rule in found.texts["findings"]
    assert "The audit found nothing" not in found.texts["findings"]


def test_what_cannot_be_audited_gives_2_and_no_page(tmp_path, capsys):
    """No directory, and nothing half-written."""
    output = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "nothing"), "--output", str(output)]) == 2
    assert "is no directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_a_file_to_write_there_is_an_error_and_no_audit(sample, capsys):
    """Exit status 2, and what to name."""
    assert main(["report", str(sample)]) == 2
    assert "--output FILE.html" in capsys.readouterr().err


def test_junit_that_tells_otherwise_is_a_finding_of_the_page_too(page):
    """The report audits as the audit does."""
    found = page(FIXTURES / "good", "--junit", str(FIXTURES / "junit" / "junit-agrees.xml"))
    assert found.status == 1
    assert "junit-agrees" in found.texts["findings"]


@pytest.mark.parametrize("place", ["there", "inside", "nowhere"])
def test_nothing_is_overwritten_and_the_evidence_stays_as_it_is(place, tmp_path, sample, capsys):
    """A file that is there, a place the manifest binds, a directory that is not there."""
    (tmp_path / "there").write_text("mine")
    output = {"inside": sample / "report.html", "nowhere": tmp_path / "no" / "report.html"}.get(
        place, tmp_path / "there"
    )
    before = sorted(path.name for path in sample.iterdir())
    assert main(["report", str(sample), "--output", str(output)]) == 2
    assert "next:" in capsys.readouterr().err or place != "there"
    assert (tmp_path / "there").read_text() == "mine"
    assert sorted(path.name for path in sample.iterdir()) == before
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_failure_while_writing_leaves_neither_file(tmp_path, sample, monkeypatch):
    """The page had its name already when the summary could not get one."""
    from parproof.evidence import new_file

    given = new_file._name
    monkeypatch.setattr(
        new_file,
        "_name",
        lambda hidden, path: given(hidden, path if path.suffix == ".html" else tmp_path / "no" / "x"),
    )
    names = ["--output", str(tmp_path / "a.html"), "--markdown", str(tmp_path / "a.md")]
    assert main(["report", str(sample), *names]) == 2
    assert list(tmp_path.iterdir()) == []


def test_the_policy_allows_the_inline_style_and_script_and_nothing_else(page, sample):
    """By their digests; and there is no address that a browser would fetch by itself."""
    found = page(sample)
    (policy,) = [m["content"] for m in found.of("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    for name in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(found.scripts[name].encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    fetching = [
        (tag, a) for tag, a in found.elements if {"src", "srcset", "data", "action", "style"} & set(a)
    ]
    assert fetching == []
    assert {tag for tag, _ in found.elements} & {"link", "img", "iframe", "object", "embed", "base"} == set()
    assert "url(" not in found.scripts["style"]
    links = {a["href"] for a in found.of("a") if not a["href"].startswith("#")}
    assert links == {"https://github.com/pytorch/pytorch/issues/192920"}


def test_totals_keep_five_statuses_apart_and_name_the_public_report(page, sample):
    """No sum of passes and skips, and a failure is told in full."""
    totals = " ".join(page(sample).texts["totals"].split())
    for told in ("7 ✓ ok", "1 ✕ failed", "1 ◆ known defect", "1 ■ blocked", "1 ○ skipped", "pytorch#192920"):
        assert re.sub(r"[✓✕◆■○] ", "", told) in re.sub(r"[✓✕◆■○] ", "", totals)
    for told in ("rank 0 of 2: all_reduce: 512 bytes in", "its worker ended with signal 9", "2 CUDA GPUs"):
        assert told in totals


def test_a_skip_is_never_shown_as_a_pass_and_no_record_is_said(page, sample):
    """The cell of a skip has no ok in it; a claim nobody tested says so in words."""
    found = page(sample)
    tones = [a["class"] for a in found.of("td") if a.get("class", "").startswith("cell")]
    assert {"cell tone-ok", "cell tone-failed", "cell tone-skipped", "cell tone-none"} <= set(tones)
    matrix = found.texts["matrix"]
    assert "no record" in matrix
    assert "PAR-ZERO-STATE" in matrix  # registered, and without a record here
    cells = [a for a in found.of("a") if "data-cell" in a]
    assert len(cells) == len(tones) - tones.count("cell tone-none")


def test_tables_have_captions_and_scopes_and_headings_leave_no_level_out(page, sample):
    """What a screen reader goes by."""
    found = page(sample)
    assert len(found.of("table")) == len(found.of("caption")) > 15
    assert [a for a in found.of("th") if a.get("scope") not in ("col", "row")] == []
    levels = [int(tag[1]) for tag, _ in found.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))
    pictures = [a for a in found.of("svg") if a.get("aria-hidden") != "true"]
    assert pictures
    assert all(a["role"] == "img" and a["aria-labelledby"] for a in pictures)
    ids = [a["id"] for _, a in found.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert {name for a in pictures for name in a["aria-labelledby"].split()} <= set(ids)


def test_every_record_is_in_the_page_once_and_whole(page, sample):
    """Index and details tell the same records as the file."""
    found = page(sample)
    index, shared = (json.loads(found.scripts[name]) for name in ("index", "shared"))
    lines = (sample / "records.jsonl").read_text().splitlines()
    assert [row[0] for row in index["rows"]] == list(range(len(lines)))
    details = json.loads(found.scripts["chunk-0"])

    def whole(value):
        if isinstance(value, dict):
            return shared[value["\0"]] if "\0" in value else {k: whole(v) for k, v in value.items()}
        return [whole(v) for v in value] if isinstance(value, list) else value

    for line, detail in zip(lines, map(whole, details), strict=True):
        record = json.loads(line)
        for part in ("identity", "conclusion", "measurements", "not_collected", "time", "load"):
            assert detail[part] == record[part]
