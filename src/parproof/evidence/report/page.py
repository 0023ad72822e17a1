"""The page: templates filled in, style and script inside, and a policy that allows these two and nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from parproof.evidence.audit import Finding, rules
from parproof.evidence.report import drawing, units
from parproof.evidence.report.cleaning import cut, visible
from parproof.evidence.report.contents import Contents
from parproof.evidence.report.limits import limits
from parproof.evidence.report.packed import script_json
from parproof.evidence.report.words import Words

STYLES = ("base.css", "parts.css", "charts.css", "print.css")
SCRIPTS = ("dom.js", "data.js", "detail.js", "list.js", "main.js")
MAX_CELL = 600  # characters of evidence in a table of the page; a record's own detail shows more
MAX_FINDINGS = 300


def html(contents: Contents, words: Words) -> str:
    """The whole page as text. Cost: a second for some thousand records."""
    style, script = (_joined(names) for names in (STYLES, SCRIPTS))
    page = _environment(words).get_template("page.html.jinja")
    shared, chunks = contents.packed.chunks()
    return page.render(
        c=contents,
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
        index=script_json(contents.packed.index(contents.matrix)),
        shared=script_json(shared),
        chunks=[script_json(chunk) for chunk in chunks],
        script_words=script_json(words.for_script()),
        limits=limits(contents, words),
        findings=_findings(contents.evidence.result.findings),
        rules=rules(),
        by_rule=Counter(finding.rule for finding in contents.evidence.result.findings),
        drawing=drawing,
        units=units,
    )


def _environment(words: Words) -> jinja2.Environment:
    """Autoescape for everything, and no value printed that hides characters or has no end."""

    def shown(value: Any) -> Any:
        if isinstance(value, Markup) or not isinstance(value, str):
            return value
        return visible(cut(value, words.cut, MAX_CELL))

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=shown,
    )
    environment.globals |= {"t": words, "lang": words.lang}
    # Blanks and line breaks of a failure stay as they are.
    environment.filters |= {"lines": lambda text: Markup.escape(visible(cut(text, words.cut, 2000), "\n\t"))}
    environment.filters |= {
        name: getattr(units, name) for name in ("count", "digits", "seconds", "size", "percent")
    }
    return environment


def _template(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text("utf-8")


def _joined(names: tuple[str, ...]) -> str:
    folder = resources.files(__package__).joinpath("assets")
    return "\n".join(folder.joinpath(name).read_text("utf-8") for name in names)


def _policy(style: str, script: str) -> str:
    """Nothing may be fetched, framed or sent; style and script are those of these digests; no text becomes markup."""
    allowed = [_digest(text) for text in (style, script)]
    return (
        f"default-src 'none'; style-src {allowed[0]}; script-src {allowed[1]}; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _findings(found: list[Finding]) -> list[Finding]:
    """At most MAX_FINDINGS, some of every rule."""
    taken: Counter[str] = Counter()
    kinds = len({finding.rule for finding in found}) or 1
    shown = []
    for finding in found:
        taken[finding.rule] += 1
        if taken[finding.rule] <= max(3, MAX_FINDINGS // kinds):
            shown.append(finding)
    return shown[:MAX_FINDINGS]
