"""The page in headless Chromium: it fetches nothing, says nothing to the console, can be used by keyboard, and prints."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from parproof.cli import main
from parproof.evidence.report.words import catalogue

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(200)]
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDE, PHONE = {"width": 1300, "height": 900}, {"width": 380, "height": 800}


@pytest.fixture(scope="module")
def chromium():
    """A browser of the machine; none is downloaded. Loaded here, for its bindings take as long as a hundred tests to collect."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="requires playwright (requirements/cpu.txt)")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"requires one of {', '.join(BROWSERS)}; found none; install the package chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A function: the path of the report of the sample, or of the hostile sample, in a language; each is made once."""
    import report_sample

    folder = tmp_path_factory.mktemp("reports")
    kinds = {"sample": report_sample.outcomes, "many": lambda: list(report_sample.many(300))}
    kinds["hostile"] = report_sample.hostile
    shutil.copytree(ROOT / "fixtures" / "evidence" / "merged", folder / "merged")

    def made(kind="sample", lang="en"):
        output, evidence = folder / f"{kind}-{lang}.html", folder / kind
        if not output.exists():
            if not evidence.exists():
                report_sample.write(evidence, kinds[kind]())
            main(["report", str(evidence), "--output", str(output), "--lang", lang])
        return output

    return made


@pytest.fixture
def opened(chromium, report):
    """A function that opens a report and, at the end, demands that it fetched nothing and had nothing to complain of."""
    contexts, complaints = [], []

    def open_page(kind="sample", lang="en", place="", viewport=WIDE, **options):
        context = chromium.new_context(viewport=viewport, reduced_motion="reduce", **options)
        contexts.append(context)
        page = context.new_page()
        path = report(kind, lang).as_uri()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda asked: asked.url.split("#")[0] == path or complaints.append(asked.url))
        page.goto(path + place)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def focused(page, code):
    """A fact about the element that has the focus."""
    return page.evaluate(f"(() => {{ const e = document.activeElement; return {code}; }})()")


def test_a_cell_opens_by_keyboard_shows_its_records_and_gives_the_focus_back(opened):
    """Tab to it, Enter, Tab to a record, Enter; Escape closes."""
    page = opened()
    for _ in range(200):
        page.keyboard.press("Tab")
        if focused(page, "e.dataset.cell !== undefined"):
            break
    cell = focused(page, "e.dataset.cell")
    page.keyboard.press("Enter")
    assert focused(page, "e.getAttribute('aria-expanded')") == "true"
    assert page.url.endswith(f"#cell={cell}")
    drill = page.locator("tr.drill")
    assert drill.count() == 1
    while not focused(page, "e.classList.contains('open-record')"):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert drill.locator(".detail h4").first.is_visible()
    page.keyboard.press("Escape")
    assert drill.count() == 0
    assert focused(page, "e.dataset.cell") == cell
    assert focused(page, "e.getAttribute('aria-expanded')") == "false"


def test_the_first_stop_of_the_keyboard_skips_to_the_content(opened):
    """Nobody has to walk through the contents."""
    page = opened()
    page.keyboard.press("Tab")
    assert focused(page, "e.textContent") == catalogue("en")["page.skip"]
    page.keyboard.press("Enter")
    assert focused(page, "e.id") == "main"


def test_a_link_to_a_record_opens_it_with_prediction_and_ledger_side_by_side(opened):
    """#record=1; what differs is said in words, not by colour alone."""
    page = opened(place="#record=1")
    linked = page.locator("#linked")
    assert linked.locator(".detail").count() == 1
    text = linked.inner_text()
    for told in ("rank 0 of 2: all_reduce: 512 bytes in", "✕ differs", "256 ≠", "not collected: the links"):
        assert told in text
    row = linked.locator("tr.differs td").all_inner_texts()
    assert [cell for cell in row if cell.isdigit()] == ["2", "1", "512", "256", "1", "256"]
    assert focused(page, "e.textContent") == "Record 1"


def test_records_are_found_by_text_and_status_and_the_address_tells_the_filter(opened):
    """And a table that is sorted says so."""
    page = opened("many")
    assert page.locator("#record-list tbody tr").count() == 50
    page.locator("#filters select[name=status]").select_option("known")
    assert page.locator("#result-count").inner_text() == "28 of 300 records"
    assert "status=known" in page.url
    page.locator("#filters input").fill("pytorch#192920")
    page.wait_for_url("**q=pytorch*")
    assert page.locator("#record-list tbody tr").count() == 28
    header = page.locator("#record-list th", has_text="record")
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    assert page.locator("#record-list .open-record").first.inner_text() == "299"
    again = opened("many", place="#" + page.url.split("#")[1])
    assert again.locator("#result-count").inner_text() == "28 of 300 records"


def test_hostile_words_do_nothing_and_are_shown(opened):
    """Every record of evidence whose every word wants to run, opened."""
    page = opened("hostile")
    for button in page.locator("#record-list .open-record").all():
        button.click()
    page.locator("a[data-cell]").first.click()
    assert page.evaluate("window.pwned") is None
    assert "</script><script>window.pwned=1</script>" in page.locator("#record-list").inner_text()
    assert "\\u202e" in page.locator("#record-list").inner_text()
    assert page.locator("#record-list .detail").count() == 4
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0


def test_every_cell_opens_as_many_records_as_it_counts(opened):
    """Of its claim, subject and lane, and of no other."""
    page = opened()
    for cell in page.locator("a[data-cell]").all():
        counted = sum(map(int, re.findall(r"\d+", " ".join(cell.locator(".chip").all_inner_texts()))))
        cell.click()
        assert page.locator("tr.drill .open-record").count() == counted > 0
        cell.click()
        assert page.locator("tr.drill").count() == 0


def test_a_cell_opens_all_attempts_and_a_record_names_its_shard(opened):
    """The failed one and the one that was ok later."""
    page = opened("merged", place="#cell=0.0.0")
    assert page.locator(".drill .attempt").all_inner_texts() == [
        f"attempt {n} of 2, the worst counts" for n in (1, 2)
    ]
    page.locator(".drill .open-record", has_text="6").click()
    assert "b" * 32 in page.locator(".drill .provenance").inner_text()


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(("kind", "scheme"), [("sample", "light"), ("sample", "dark"), ("merged", "light")])
def test_axe_finds_no_violation(lang, kind, scheme, opened):
    """Contrast, names, landmarks, roles; with a cell and a record open."""
    from axe_playwright_python.sync_playwright import Axe

    page = opened(kind, lang, color_scheme=scheme)
    page.locator("a[data-cell]").first.click()
    page.locator(".drill .open-record").first.click()
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    found = Axe().run(page).response
    assert [(v["id"], [n["html"][:200] for n in v["nodes"][:3]]) for v in found["violations"]] == []
    assert len(found["passes"]) > 20


def test_both_schemes_and_the_button_between_them(opened):
    """The system's choice, then the reader's."""
    background = "getComputedStyle(document.body).backgroundColor"
    light, dark = (opened(color_scheme=scheme) for scheme in ("light", "dark"))
    assert light.evaluate(background) != dark.evaluate(background)
    dark.locator("#theme").click()
    assert dark.evaluate(background) == light.evaluate(background)
    assert dark.locator("#theme").inner_text() == catalogue("en")["js.theme.light"]


@pytest.mark.parametrize("kind", ["sample", "merged"])
def test_chinese_is_chinese_but_for_words_of_the_evidence_and_of_the_registry(kind, opened):
    """Whatever is not marked as such holds no English word, in the details of a record too."""
    page = opened(kind, "zh", "#record=0" if kind == "merged" else "#record=1")
    assert page.locator("html").get_attribute("lang") == "zh-Hans"
    text = page.evaluate("""() => {
      document.querySelectorAll('script, style, noscript, svg, option, caption, #matrix h3, #matrix .plain, .ev, .en, code, [translate=no]').forEach((e) => e.remove());
      const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
      while (walker.nextNode()) found.push(walker.currentNode.data);
      return found.join(" "); }""")
    terms = "rank real_benchmark pytest parproof torch records.jsonl sha256 JavaScript gloo NCCL schema cuda1 cuda2"
    terms += " cross_node records jsonl manifest merge"
    shown = set(re.findall(r"[A-Za-z][\w.-]{3,}", text))
    left = sorted(word for word in shown if word not in terms.split() and not word.startswith("PAR-"))
    assert left == []


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_the_page_never_scrolls_sideways(viewport, opened):
    """Wide tables scroll in themselves."""
    page = opened("many", viewport=viewport, place="#record=5")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0


def test_it_prints_with_what_matters_open_and_without_what_is_for_screens(opened, tmp_path):
    """A PDF of several pages; what was folded is there, buttons are not."""
    page = opened(color_scheme="dark")
    page.emulate_media(media="print")
    assert page.locator("#filters").is_hidden()
    assert page.locator("#theme").is_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    skips = page.locator("#totals details td", has_text="2 CUDA GPUs")
    assert skips.bounding_box()["height"] > 10
    pdf = page.pdf(path=tmp_path / "report.pdf")
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) > 3


def test_without_javascript_the_main_parts_are_there(opened):
    """Limits, totals, matrix and charts, and a hint at what is not."""
    page = opened(java_script_enabled=False)
    assert "What does not follow from it" in page.locator("#limits").inner_text()
    assert "no record" in page.locator("#matrix").inner_text()
    assert page.locator("#pipeline svg.gantt").first.is_visible()
    assert catalogue("en")["noscript"] in page.locator("#records").inner_text()
