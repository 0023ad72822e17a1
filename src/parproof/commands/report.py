"""`parproof report DIR`: evidence for people."""

from __future__ import annotations

import argparse
from pathlib import Path

from parproof.commands.command import DIGEST, FINDINGS, JUNIT, OK, Command, digest_of, show_progress
from parproof.errors import UsageError


def _report(options: argparse.Namespace) -> int:
    from parproof.evidence import report  # the template library is loaded for this command only

    wanted = [path for path in (options.output, options.markdown) if path is not None]
    if not wanted:
        raise UsageError(
            "no file to write was named",
            expected="--output FILE.html, --markdown FILE.md or both",
            where="report",
        )
    report.check_new(wanted, options.directory)
    words = report.Words(options.lang)
    evidence = report.gather(options.directory, options.junit, digest_of(options.digest), show_progress)
    contents = report.collect(evidence, words)
    texts = {}
    if options.output is not None:
        texts[options.output] = report.html(contents, words)
    if options.markdown is not None:
        texts[options.markdown] = report.markdown(contents, words)
    report.write_new(texts)
    for path, text in texts.items():
        print(f"{path}: {len(text.encode()):,} bytes")
    print(
        f"{contents.totals.num_records} records of {contents.tested.num_tests} tests shown; "
        f"{contents.findings} findings of the audit"
    )
    return FINDINGS if contents.findings else OK


COMMAND = Command(
    "report",
    _report,
    "evidence for people, as one HTML page and as Markdown: 0 clean, 1 findings (written all the same), 2 unusable",
    (
        (("directory",), {"type": Path}),
        (("--output",), {"type": Path, "metavar": "FILE", "help": "the page: one file that needs no other"}),
        (("--markdown",), {"type": Path, "metavar": "FILE", "help": "a summary for CI, at most 1 MB"}),
        JUNIT,
        DIGEST,
        (("--lang",), {"choices": ("en", "zh"), "default": "en"}),
    ),
)
