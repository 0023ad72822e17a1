"""From pytest's phases to an Outcome: what a test's end means, and why."""

from __future__ import annotations

import datetime
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from parproof import hardware
from parproof.evidence.attempts import Ending
from parproof.evidence.record import Outcome
from parproof.plugin.lanes import lane_of, parameters_of
from parproof.plugin.ranks import RANKS

_MAX_TEXT = 2000
_NEED = re.compile(r"requires (?P<requirement>.*?); found (?P<found>.*?); (?P<how>.*)", re.DOTALL)


@dataclass(frozen=True)
class Phase:
    """One of setup, call, teardown."""

    when: str
    outcome: str
    duration_s: float
    error_type: str | None
    text: str
    expected_failure: str | None
    started_s: float
    ended_s: float

    @classmethod
    def of(cls, report: pytest.TestReport, call: pytest.CallInfo[None]) -> Phase:
        """Keep what a record needs."""
        text, error_type = "", None
        if call.excinfo is not None:
            text, error_type = str(call.excinfo.value), call.excinfo.type.__name__
        elif report.failed:
            text, error_type = str(report.longrepr), "Failed"
        return cls(
            report.when or "",
            report.outcome,
            report.duration,
            error_type,
            text[:_MAX_TEXT],
            getattr(report, "wasxfail", None),
            call.start,
            call.stop,
        )


@dataclass
class Attempts:
    """Records of one test in the order in which it was run; the key tells two tests of one name apart."""

    key: str = field(default_factory=lambda: secrets.token_hex(8))
    records: list[dict[str, Any]] = field(default_factory=list)

    @property
    def worst(self) -> dict[str, Any]:
        """The record that the test is counted by."""
        return min(self.records, key=lambda record: Ending.of(record["conclusion"]).severity)

    def plain(self) -> dict[str, Any]:
        """As it travels on a report."""
        return {"key": self.key, "records": list(self.records)}


HISTORY: pytest.StashKey[list[Phase]] = pytest.StashKey()


def outcome_of(item: pytest.Item, history: Sequence[Phase], facts: Mapping[str, Any]) -> Outcome:
    """The test's outcome from its phases, its markers and what it said about itself."""
    experiment = item.get_closest_marker("experiment")
    ranks = item.stash.get(RANKS, None)
    runs = [(run.observation, run.ledgers) for run in ranks.runs] if ranks else []
    status, failure, skip, expected = _judge(history)
    return Outcome(
        nodeid=item.nodeid,
        status=status,
        duration_s=sum(phase.duration_s for phase in history),
        experiment=experiment.args[0] if experiment else None,
        claims=tuple(sorted({c for marker in item.iter_markers("claim") for c in marker.args})),
        lane=lane_of(item),
        parameters=_parameters(item),
        subject=_subject(item),
        ran=any(phase.when == "call" for phase in history),
        runs=runs,
        failed_runs=list(ranks.failed_runs) if ranks else [],
        accelerator=_accelerator([facts for facts, _ in runs] + (ranks.failed_runs if ranks else [])),
        failure=failure,
        skip=skip,
        expected_nonconformance=expected,
        started=_utc(history[0].started_s),
        ended=_utc(history[-1].ended_s),
        worker=getattr(item.config, "workerinput", {}).get("workerid", "main"),
        **facts,
    )


def _accelerator(runs: Sequence[Mapping[str, Any]]) -> str | None:
    """Of ranks that were started on this machine; what others have is for them to say."""
    devices = {rank["device"] for run in runs if run["launcher"] == "local" for rank in run["ranks"]}
    return hardware.names_of(devices - {"cpu"}) if devices - {"cpu"} else None


def _utc(seconds: float) -> str:
    """Seconds since the epoch as the store writes its own times."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="microseconds")


def _judge(
    history: Sequence[Phase],
) -> tuple[str, dict[str, Any] | None, dict[str, str] | None, str | None]:
    """(status, failure, skip, report number of an expected nonconformance).

    An expected nonconformance is a fault that was found: failed, never ok and never skipped.
    """
    for phase in history:
        # First, since a test that skips or is expected to fail may still break in its teardown.
        if phase.outcome == "failed":
            # A claim that judged and found a fault has failed; anything else could not judge.
            status = "failed" if phase.when == "call" else "blocked"
            return status, _failure(phase), None, None
    for phase in history:
        if phase.expected_failure is not None and phase.outcome == "skipped":
            report = re.search(r"expected nonconformance (.+?): ", phase.expected_failure)
            return "failed", _failure(phase), None, report.group(1) if report else phase.expected_failure
        if phase.outcome == "skipped":
            return "skipped", None, _need(phase.text), None
    return "ok", None, None, None


def _failure(phase: Phase) -> dict[str, Any]:
    where = re.search(r"rank (\d+) of (\d+)", phase.text)
    return {
        "type": phase.error_type or "unknown",
        "message": phase.text,
        "phase": phase.when,
        "rank": int(where.group(1)) if where else None,
    }


def _need(text: str) -> dict[str, str]:
    """The three parts of a skip, where its reason was written in three parts."""
    parts = _NEED.search(text)
    if parts:
        return {"reason": text} | parts.groupdict()
    observed, _, how = text.partition("\n  next: ")
    return {"reason": text, "requirement": "", "found": observed, "how": how}


def _parameters(item: pytest.Item) -> dict[str, str]:
    """Parameters by name; a value that is not plain is told by its type."""
    return {
        name: str(value) if isinstance(value, (str, int, float, bool)) else type(value).__name__
        for name, value in parameters_of(item).items()
    }


def _subject(item: pytest.Item) -> dict[str, str] | None:
    address = parameters_of(item).get("subject")
    if not isinstance(address, str) or ":" not in address:
        return None
    module, _, attribute = address.partition(":")
    return {"name": module.rsplit(".", 1)[-1] if attribute == "SUBJECT" else attribute, "address": address}


def crashed(report: pytest.TestReport, text: Callable[[str], str]) -> dict[str, Any]:
    """The record of a test whose process died: it could not judge."""
    from parproof.evidence.record import build

    failure = {
        "type": "WorkerCrash",
        "message": str(report.longrepr)[:_MAX_TEXT],
        "phase": "call",
        "rank": None,
    }
    gateway = getattr(getattr(report, "node", None), "gateway", None)
    worker = str(getattr(gateway, "id", "main"))
    outcome = Outcome(report.nodeid, "blocked", report.duration, failure=failure, ran=False, worker=worker)
    return build(outcome, text)


def reason_text(conclusion: Mapping[str, Any]) -> str:
    """One line for JUnit: why it is as it is."""
    if conclusion["skip"]:
        text = conclusion["skip"]["reason"]
    elif conclusion["failure"]:
        text = conclusion["failure"]["message"]
    else:
        text = conclusion["level_reason"]
    return str(text).split("\n", 1)[0]
