"""How fast a report opens: N records, told by the browser itself, in Chromium without a window.

    python benchmarks/report_open.py [--records 5000] [--evidence DIR] [--repeats 5]

Prints the time to write the page, its size, and the median over fresh browser contexts of: DOM ready, script done, load
event, the first paint, the opening of one record, and one search. Ends with 1 when the load takes longer than the limit.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

LOAD_LIMIT_S = 2.0
TIMES = """() => {
  const told = performance.getEntriesByType("navigation")[0];
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  return {"DOM ready": told.domInteractive, "script done": performance.getEntriesByName("parproof-ready")[0].startTime,
          "load event": told.loadEventEnd, "first paint": paint ? paint.startTime : 0};
}"""
# Until the next frame is drawn: what a reader waits for.
ACTION = """(code) => new Promise((done) => {
  const started = performance.now();
  new Function(code)();
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - started)));
})"""
OPEN = 'document.querySelector("#record-list .open-record").click()'
SEARCH = 'const s = document.querySelector("#filters select"); s.value = "failed"; s.dispatchEvent(new Event("change"))'


def written(evidence: Path, output: Path) -> float:
    """Seconds that the command took."""
    from parproof.cli import main

    started = time.monotonic()
    if main(["report", str(evidence), "--output", str(output)]) == 2:
        sys.exit("no report was written")
    return time.monotonic() - started


def opened(browser: Any, page_file: Path) -> dict[str, float]:
    """Milliseconds of one opening in a context of its own."""
    context = browser.new_context(viewport={"width": 1300, "height": 900}, bypass_csp=True)
    page = context.new_page()
    page.goto(page_file.as_uri(), wait_until="load")
    page.wait_for_timeout(100)
    found: dict[str, float] = page.evaluate(TIMES)
    found["open one record"] = page.evaluate(ACTION, OPEN)
    found["filter by status"] = page.evaluate(ACTION, SEARCH)
    context.close()
    return found


def main() -> int:
    """Make the evidence, the page, and open it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--evidence", type=Path, help="measure the report of this directory instead")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("no chromium, chromium-browser or google-chrome in PATH; install one")
    import report_sample
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        evidence = options.evidence or Path(folder) / "evidence"
        if options.evidence is None:
            report_sample.write(evidence, list(report_sample.many(options.records)))
        page_file = Path(folder) / "report.html"
        print(f"written in {written(evidence, page_file):.1f} s, {page_file.stat().st_size / 1e6:.1f} MB")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        runs = [opened(browser, page_file) for _ in range(options.repeats)]
        browser.close()
    medians = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    for name, median in medians.items():
        print(f"{name:18} {median:7.0f} ms")
    kept = medians["load event"] <= 1e3 * LOAD_LIMIT_S
    print(f"limit of {LOAD_LIMIT_S} s for the load event: {'kept' if kept else 'BROKEN'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
