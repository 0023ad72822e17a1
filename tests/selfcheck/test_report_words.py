"""All words of the page come from one catalogue a language; those of the evidence are seen, bounded and never markup."""

import html.parser
import json
import re
import string
import sys
from importlib import resources
from pathlib import Path

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parproof.cli import main
from parproof.evidence.report.cleaning import MAX_ITEMS, MAX_TEXT, cleaned, cut, visible
from parproof.evidence.report.packed import script_json
from parproof.evidence.report.words import LANGUAGES, Words, catalogue

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import report_sample

pytestmark = pytest.mark.selfcheck
REPORT = resources.files("parproof.evidence.report")
TEMPLATES = sorted(p.name for p in REPORT.joinpath("templates").iterdir())
SCRIPTS = sorted(p.name for p in REPORT.joinpath("assets").iterdir() if p.name.endswith(".js"))


def note(shown, total):
    """What says that something was cut."""
    return f"{shown} of {total}"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Evidence whose every word wants something."""
    path = tmp_path_factory.mktemp("hostile") / "evidence"
    report_sample.write(path, report_sample.hostile(), label=report_sample.HOSTILE)
    return path


class Tags(html.parser.HTMLParser):
    """Elements and the names of their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Names only."""
        self.found.append((tag, [name for name, _ in attrs]))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_words_of_the_evidence_make_no_element_and_stay_small(lang, hostile, tmp_path):
    """Every script and every attribute of the page is ours; what is hidden is shown; 1 MB strings are cut, and said so."""
    output = tmp_path / "report.html"
    assert main(["report", str(hostile), "--output", str(output), "--lang", lang]) == 1
    text = output.read_text("utf-8")
    assert len(text) < 2_000_000
    tags = Tags(text).found
    assert not [names for _, names in tags if any(name.startswith("on") for name in names)]
    assert {tag for tag, _ in tags} & {"img", "b", "iframe"} == set()
    assert sum(tag == "script" for tag, _ in tags) == 5
    assert not set("\u202e\u2066\u200b\ufeff\x1b\x00\x07\u2028\u2029") & set(text)
    assert "\\u202emoc.live" in text
    assert Words(lang).cut(MAX_TEXT, 1_000_000) in text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_both_languages_have_the_same_words_with_the_same_places(lang):
    """A key that one has and the other not is a hole in the page."""
    ours, english = catalogue(lang), catalogue("en")
    assert list(ours) == sorted(ours)
    assert ours.keys() == english.keys()
    for key, text in ours.items():
        places = {name for _, name, _, _ in string.Formatter().parse(text) if name}
        other = {name for _, name, _, _ in string.Formatter().parse(english[key]) if name}
        assert places == other or key.endswith(".one"), key
    if lang == "zh":
        same = {key for key in ours if ours[key] == english[key] and re.search("[A-Za-z]{3}", ours[key])}
        assert same == {key for key in same if ours[key] in ("rank", "rank {n}", "sha256", "UTC")}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_has_no_words_of_its_own(name):
    """What is left of it without code, tags and entities holds no letter, but for a command that is typed."""
    source = REPORT.joinpath("templates", name).read_text("utf-8")
    plain = "".join(text for _, kind, text in jinja2.Environment().lex(source) if kind == "data")
    shown = re.sub(r"<[^>]*>|&\w+;", " ", re.sub(r"<(script|style)\b.*?</\1>", " ", plain, flags=re.S))
    left = {word for word in re.findall(r"[^\W\d_]+", shown) if word not in "parproof audit DIR digest"}
    assert left <= {"doctype", "html"}
    assert re.findall(r'(?:title|aria-label|alt|placeholder)="[^"]*[A-Za-z]', plain) == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_no_words_of_its_own_and_makes_no_markup(name):
    """Literals are names and signs; a text becomes text. No way to fetch or to run a string is used."""
    source = REPORT.joinpath("assets", name).read_text("utf-8")
    code = re.sub(r"/\*.*?\*/|(?<![:\"])//[^\n]*", "", source, flags=re.S)
    words = [w for w in re.findall(r'"([^"\n]*)"', code) if re.search(r"[A-Za-z]{3,} [A-Za-z]{3,}", w)]
    known = {
        "use strict",
        "button more",
        "brief attempt",
        "brief ev",
        "brief reason ev",
        "full failure",
        "full skip",
        "level none",
    }
    assert set(words) <= known | {"panel warn"}
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
        "fetch(",
    ):
        assert forbidden not in code
    assert "XMLHttp" not in code
    assert "import(" not in code


def test_every_word_that_is_used_is_there_and_every_word_that_is_there_is_used():
    """Keys made of data are known by their beginning."""
    names = [("templates", n) for n in TEMPLATES] + [("assets", n) for n in SCRIPTS]
    sources = [REPORT.joinpath(folder, n).read_text("utf-8") for folder, n in names]
    sources += [p.read_text("utf-8") for p in REPORT.iterdir() if p.name.endswith(".py")]
    whole = "\n".join(sources)
    used = set(re.findall(r"""\bt\(\s*["']([\w.]+)["']\s*[,)]""", whole)) | set(
        re.findall(r"""\bwords\(\s*["']([\w.]+)["']""", whole)
    )
    used |= {f"js.{key}" for key in re.findall(r'\bsay\(\s*"([\w.]+)"', whole)}
    used = {key for key in used if not key.endswith(".")}
    known = set(catalogue("en"))
    assert used - known == set()
    made = "status. mark. level. scope. tier. limits. findings. failures. environment. glossary. pipeline. traffic."
    made += (
        " topology. curves. js.status. js.field. js.ledger. js.column. js.theme. js.topology. js.compared."
    )
    beginnings = tuple(made.split())
    rest = {
        key
        for key in known - used
        if not key.startswith(beginnings) and not key.endswith((".one", ".heading"))
    }
    assert {key for key in rest if f'"{key.removeprefix("js.")}"' not in whole} == set()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=30,
    )
)
def test_whatever_is_embedded_is_one_line_of_visible_json_that_ends_no_element(value):
    """And it is the same value again, but for what does not print and what a script cannot count to."""
    text = str(script_json(cleaned(value, note)))
    assert not set("<>&\u2028\u2029\n\r\0\u202e") & set(text)
    again = json.loads(text)
    assert again == cleaned(value, note)
    assert json.loads(str(script_json(cleaned(again, note)))) == again


def test_what_is_too_much_is_cut_and_said_so():
    """Strings, lists, objects, and the sum of all."""
    assert cut("abc", note, 3) == "abc"
    assert cut("abcd", note, 3) == "abc … [3 of 4]"
    assert cleaned(list(range(1000)), note)[MAX_ITEMS:] == [f"… {MAX_ITEMS} of 1000"]
    many = cleaned({str(n): n for n in range(10_000)}, note)
    assert (len(many), many["…"]) == (MAX_ITEMS + 1, f"{MAX_ITEMS} of 10000")
    assert len(json.dumps(cleaned([["x" * 5000] * 200] * 200, note))) < 70_000
    assert cleaned(2**53, note) == "9007199254740992"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u202eb", "a\\u202eb"),
        ("\x1b[2J", "\\x1b[2J"),
        ("中文 é\u3000", "中文 é\u3000"),
        ("\ud800", "\\ud800"),
        ("a\nb", "a\\nb"),
    ],
)
def test_what_does_not_print_is_shown_as_its_escape(text, shown):
    """Letters of any language and blanks stay; bidi overrides, controls and half characters do not."""
    assert visible(text) == shown
    assert visible("a\nb", keep="\n") == "a\nb"
