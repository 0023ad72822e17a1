"""Markdown for the summary of a CI job: limits, findings, totals, matrix and failures, at most 1 MB.

Words of the evidence stand in code spans: no markup, link, mention or HTML in them means anything there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from parproof.evidence.markdown import table
from parproof.evidence.report.cleaning import cut, visible
from parproof.evidence.report.contents import Contents
from parproof.evidence.report.limits import limits
from parproof.evidence.report.matrix import Cell, Group
from parproof.evidence.report.words import Words

MAX_BYTES = 1_000_000
MAX_WORDS, MAX_FAILURES, MAX_FINDINGS = 300, 50, 50
MAX_SHARDS, MAX_DIFFERENCES, MAX_ATTEMPTS = 50, 50, 20


def markdown(contents: Contents, words: Words) -> str:
    """The summary; sections that would pass MAX_BYTES are left out and named."""
    text, left_out = "", 0
    for section in _sections(contents, words):
        block = "\n".join(section) + "\n\n"
        if len(text.encode()) + len(block.encode()) > MAX_BYTES - 500:
            left_out += 1
            continue
        text += block
    if left_out:
        text += words("md.left_out", n=left_out) + "\n"
    return text


def _sections(c: Contents, words: Words) -> Iterator[list[str]]:
    yield [f"# {words('page.title')}", "", *_verdict(c, words)]
    yield [
        f"## {words('limits.heading')}",
        "",
        f"**{words('limits.not')}**",
        "",
        *(f"- {limit}" for limit in limits(c, words)),
    ]
    if c.shards:
        yield _merged(c, words)
    yield _findings(c, words)
    if c.tested.num_flaky:
        yield _flaky(c, words)
    yield _totals(c, words)
    for _, group in c.matrix.groups():
        yield _matrix(group, words)
    yield _failures(c, words)
    if c.evidence.manifest is not None:
        digest = c.evidence.manifest["digest"]
        yield [f"`parproof audit DIR --digest {digest}`"]


def _verdict(c: Contents, words: Words) -> list[str]:
    if c.findings:
        return [
            "> [!CAUTION]",
            f"> **{words('verdict.findings', n=c.findings)}** {words('verdict.findings.next')}",
        ]
    return ["> [!NOTE]", f"> **{words('verdict.clean')}** {words('verdict.clean.next')}"]


def code(text: str, limit: int = MAX_WORDS) -> str:
    """A code span whatever the text holds, in a table too: one line, a fence longer than any run of backticks."""
    shown = visible(cut(text, lambda shown, total: f"{shown}/{total}", limit)).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    space = " " if not shown or shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{space}{shown}{space}{fence}" if shown else ""


def _findings(c: Contents, words: Words) -> list[str]:
    found = c.evidence.result.findings
    lines = [f"## {words('findings.heading')}", ""]
    if not found:
        return [*lines, words("findings.none")]
    names = ("rule", "where", "claimed", "supported")
    rows = [map(code, (f.rule, f.record, f.claimed, f.supported)) for f in found[:MAX_FINDINGS]]
    lines += table((words(f"findings.{name}") for name in names), rows)
    return lines + _rest(len(found), MAX_FINDINGS, words)


def _merged(c: Contents, words: Words) -> list[str]:
    lines = [f"## {words('merged.heading', n=len(c.shards))}", "", words("merged.meaning"), ""]
    lines += [f"- {code(shard)}" for shard in c.shards[:MAX_SHARDS]] + _rest(len(c.shards), MAX_SHARDS, words)
    lines += ["", f"### {words('merged.differences')}", ""]
    lines += [f"- {code(text)}" for text in c.differences[:MAX_DIFFERENCES]] or [
        words("merged.no_differences")
    ]
    return lines + _rest(len(c.differences), MAX_DIFFERENCES, words)


def _flaky(c: Contents, words: Words) -> list[str]:
    """Every attempt with its status, in one line a test."""
    lines = [f"### {words('flaky.heading')}", "", words("flaky.some", n=c.tested.num_flaky), ""]
    shown = c.tested.flaky()[:MAX_FAILURES]
    rows = [
        (
            code(nodeid),
            "<br>".join(
                f"{words('mark.' + a.status)} {words('status.' + a.status)}{words('list.and')}{words('flaky.record')} {a.sequence}"
                + (f"{words('list.and')}{words('flaky.shard')} {code(a.shard[:8])}" if a.shard else "")
                for a in attempts[:MAX_ATTEMPTS]
            ),
        )
        for nodeid, attempts in shown
    ]
    lines += table((words("failures.test"), words("flaky.attempts")), rows)
    return lines + _rest(c.tested.num_flaky, len(shown), words)


def _rest(total: int, shown: int, words: Words) -> list[str]:
    return ["", words.cut(shown, total)] if total > shown else []


def _totals(c: Contents, words: Words) -> list[str]:
    statuses = ("ok", "failed", "known", "blocked", "skipped")
    rows = [(words(f"status.{status}"), f"{c.totals.counts[status]:,}") for status in statuses]
    lines = [f"## {words('totals.heading')}", "", words("totals.skip_is_no_pass"), words("totals.worst"), ""]
    lines += table((words("totals.status"), words("totals.tests")), rows)
    defects = c.totals.shown_defects()
    if defects:
        lines += ["", f"### {words('defects.heading')}", ""]
        names = (words("defects.report"), words("totals.tests"), words("defects.claims"))
        lines += table(
            names, ((code(d.report), f"{d.count:,}", code(", ".join(sorted(d.claims)))) for d in defects)
        )
    return lines


def _matrix(group: Group, words: Words) -> list[str]:
    """One table an experiment; a skip has its own sign and word, and no record is said."""
    name = code(group.id) or words("matrix.no_experiment")
    title = f" {group.title}" if group.title else ""
    columns = group.shown_columns()
    named = [" · ".join(code(part) for part in column[:2] if part) or "—" for column, _ in columns]
    rows = []
    for claim, row in group.shown_rows():
        statement = group.statements.get(claim, ("", ""))[1]
        first = f"{code(claim) or words('matrix.no_claim')} {_plain(statement)}"
        rows.append([first, *(_cell(group.cell(row, number), words) for _, number in columns)])
    lines = [f"### {words('matrix.heading')}: {name}{title}", ""]
    lines += table([words("matrix.claim"), *named], rows)
    return lines + _rest(len(group.columns), len(columns), words)


def _cell(cell: Cell, words: Words) -> str:
    if not cell.total:
        return words("matrix.no_record")
    told = [
        f"{words('mark.' + status)} {number:,} {words('status.' + status)}"
        for status, number in cell.by_status()
    ]
    levels = ", ".join(f"`{level}`" for level, _ in cell.by_level())
    return "<br>".join([*told, *([levels] if levels else [])])


def _plain(text: str) -> str:
    """A statement of the registry: ours, but a pipe or a star in it would still be markup."""
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", text)


def _failures(c: Contents, words: Words) -> list[str]:
    lines = [f"## {words('failures.heading')}", ""]
    if not c.totals.num_failures:
        return [*lines, words("failures.none")]
    rows = [
        (
            str(f["sequence"]),
            code(f["nodeid"]),
            words(f"status.{f['status']}"),
            "" if f["rank"] is None else str(f["rank"]),
            code(f"{f['type']}: {f['message']}"),
        )
        for f in c.totals.failures[:MAX_FAILURES]
    ]
    names = ("record", "test", "status", "rank", "what")
    lines += table((words(f"failures.{name}") for name in names), rows)
    return lines + _rest(c.totals.num_failures, MAX_FAILURES, words)
