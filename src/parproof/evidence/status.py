"""The asset table: every registered experiment with a state that is derived, never typed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from parproof import registry
from parproof.evidence.attempts import Ending, Tally
from parproof.evidence.audit import audit, records
from parproof.evidence.level import LEVELS
from parproof.evidence.markdown import table as table_of

_HEADINGS = {
    "en": ("experiment", "page", "contrast", "metrics", "consumes", "claims", "state"),
    "zh": ("实验 ID", "页面", "固定对照", "主要指标", "消费的机制资产", "主张", "当前状态"),
}
_PROFILE_HEADINGS = {
    "en": ("environment", "lanes", "entered from", "evidence it can form", "and cannot"),
    "zh": ("环境 ID", "通道", "直接入口", "可形成的证据", "不能形成"),
}


def table(evidence: Path | None, *, checkout: Path | None) -> list[dict[str, Any]]:
    """One row an experiment. Evidence that does not pass its audit raises nothing but counts for nothing."""
    tested = _tested(checkout)
    sound = evidence is None or not audit(evidence).findings
    seen = _seen(evidence) if evidence is not None else {}
    rows = []
    for experiment in registry.load().experiments:
        implemented = experiment.id in tested if checkout else bool(experiment.claims)
        found = seen.get(experiment.id, Counter())
        rows.append(
            {
                "id": experiment.id,
                "kind": experiment.kind,
                "title": experiment.title,
                "title_zh": experiment.title_zh,
                "pages": [
                    f"{page} ({revision})" if revision != "all" else page
                    for page, revision in experiment.aliases
                ],
                "contrast": experiment.contrast,
                "metrics": list(experiment.metrics),
                "consumes": [e.producer for e in registry.load().edges if e.consumer == experiment.id],
                "num_claims": len(experiment.claims),
                "state": _state(implemented, found, sound, evidence is not None),
            }
        )
    return rows


def _state(implemented: bool, found: Counter[tuple[str, str | None]], sound: bool, given: bool) -> str:
    if not implemented:
        return "planned"
    if not sound:
        return "evidence does not pass its audit"
    if not found:
        return "implemented, not in this evidence" if given else "implemented, no evidence given"
    levels = [level for status, level in found if level is not None and status == "ok"]
    level = max(levels, key=LEVELS.index, default="none")
    by_status: Counter[str] = Counter()
    for (status, _), number in found.items():
        by_status[status] += number
    counts = ", ".join(
        f"{by_status[name]} {name}" for name in ("ok", "failed", "blocked", "skipped") if by_status[name]
    )
    return f"{level}: {counts}"


def _tested(checkout: Path | None) -> set[str]:
    """Experiments that a test module of the checkout names."""
    found: set[str] = set()
    for folder in ("mechanisms", "projects") if checkout else ():
        assert checkout is not None
        for path in (checkout / "tests" / folder).glob("test_*.py"):
            found |= set(re.findall(r'mark\.experiment\("([^"]+)"\)', path.read_text("utf-8")))
    return found


def _seen(evidence: Path) -> dict[str, Counter[tuple[str, str | None]]]:
    """(status, level) of the tests of each experiment, a test with several attempts once, by its worst."""
    tallies: dict[str, Tally] = {}
    for record in records(evidence):
        if record["identity"]["semantic_id"]:
            tally = tallies.setdefault(record["identity"]["semantic_id"], Tally())
            tally.add(record["identity"]["nodeid"], Ending.of(record["conclusion"]))
    return {
        experiment: Counter(
            (ending.status, None if ending.level == "none" else ending.level)
            for ending in tally.worst.values()
        )
        for experiment, tally in tallies.items()
    }


def markdown(rows: list[dict[str, Any]], lang: str) -> str:
    """The tables for people: experiments, then the environments that they are entered from."""
    title = "title_zh" if lang == "zh" else "title"
    experiments = [
        (
            f"{row['id']} ({row[title]})",
            ", ".join(row["pages"]),
            row["contrast"],
            ", ".join(row["metrics"]),
            ", ".join(row["consumes"]),
            str(row["num_claims"]),
            row["state"],
        )
        for row in rows
    ]
    profiles = [
        (
            f"{profile.id} ({profile.title_zh if lang == 'zh' else profile.title})",
            ", ".join(profile.lanes),
            ", ".join(e.id for e in registry.load().experiments if profile.id in e.profiles),
            profile.shows,
            profile.shows_not,
        )
        for profile in registry.load().profiles
    ]
    tables = table_of(_HEADINGS[lang], experiments), table_of(_PROFILE_HEADINGS[lang], profiles)
    return "\n\n".join("\n".join(lines) for lines in tables)
