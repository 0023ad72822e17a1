"""The summary for CI: limits first, escaped as Markdown, small enough for a step summary, in both languages."""

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from parproof.cli import main
from parproof.evidence.report import summary as md
from parproof.evidence.report.cleaning import visible
from parproof.evidence.report.words import LANGUAGES

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import report_sample

pytestmark = pytest.mark.selfcheck
GITHUB = MarkdownIt("gfm-like", {"html": True, "linkify": False})
PARTS = (
    "# parproof",
    "## What this evidence is",
    "**What does not follow from it**",
    "## Findings",
    "## Totals",
    "### Conformance matrix",
    "## Failed",
)


@pytest.fixture
def summarised(tmp_path):
    """The Markdown of evidence."""

    def made(outcomes, *options):
        report_sample.write(tmp_path / "evidence", outcomes)
        main(["report", str(tmp_path / "evidence"), "--markdown", str(tmp_path / "summary.md"), *options])
        return (tmp_path / "summary.md").read_text("utf-8")

    return made


def leaves(text):
    """Inline tokens of the rendered document, and block tokens of raw HTML."""
    for token in GITHUB.parse(text):
        yield from token.children or ()
        if token.type == "html_block":
            yield token


def test_limits_come_first_and_every_part_in_its_order(summarised):
    """A reader of a CI job sees what does not follow before any number."""
    text = summarised(report_sample.outcomes())
    places = [text.index(part) for part in PARTS]
    assert places == sorted(places)
    assert "| failed | 1 |" in text
    assert "| known defect | 1 |" in text
    assert "✕ 1 failed" in text
    assert "no record" in text
    assert "rank 0 of 2: all_reduce: 512 bytes in" in text
    assert "parproof audit DIR --digest" in text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_words_of_the_evidence_are_code_and_nothing_else(lang, summarised):
    """No HTML but our line breaks, no link, no emphasis, no mention outside a code span; tables keep their columns."""
    text = summarised(report_sample.hostile(), "--lang", lang)
    kinds = {token.type for token in leaves(text)}
    assert {token.content for token in leaves(text) if token.type.startswith("html")} <= {"<br>"}
    assert kinds & {"link_open", "image", "em_open"} == set()
    outside = " ".join(token.content for token in leaves(text) if token.type == "text")
    for word in ("@someone", "pwned", "evil", "onerror"):
        assert word not in outside
    assert not set("\u202e\x1b\x00\u2028") & set(text)
    widths = {}
    for token in GITHUB.parse(text):
        if token.type == "tr_open":
            widths.setdefault(token.map[0], 0)
            row = token.map[0]
        if token.type in ("td_open", "th_open"):
            widths[row] += 1
    assert len(set(widths.values())) <= 4


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(alphabet=st.sampled_from("`|\\<>[]()*_~#@! a\nx\u202e"), max_size=40))
def test_any_text_in_a_cell_is_one_code_span(text):
    """A table of two columns stays one, and what is in the first cell is code."""
    cell = md.code(text)
    tokens = GITHUB.parse(f"| a | b |\n|---|---|\n| {cell} | end |\n")
    cells = [tokens[n + 1] for n, token in enumerate(tokens) if token.type == "td_open"]
    assert [c.content for c in cells][1:] == ["end"]
    assert [c.type for c in cells[0].children] == (["code_inline"] if text else [])
    assert "".join(c.content for c in cells[0].children).strip() == visible(text).strip()


def test_it_has_at_most_1_mb_and_says_what_is_left_out(summarised, monkeypatch):
    """A step summary of more is refused by GitHub as a whole."""
    monkeypatch.setattr(md, "MAX_BYTES", 6_000)
    text = summarised(report_sample.outcomes())
    assert len(text.encode()) <= 6_000
    assert "sections are left out" in text
    assert "What this evidence is" in text


def test_many_failures_are_cut_and_counted(summarised):
    """The first fifty, and how many there are."""
    text = summarised(list(report_sample.many(1100)))
    assert f"{md.MAX_FAILURES} of 200 shown" in text
    assert len(text.encode()) < 100_000
