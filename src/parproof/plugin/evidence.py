"""The `evidence` fixture, and from a test's outcome to its record and its JUnit properties.

The record is built where the test ran and travels on the report (xdist ships extra attributes of a report as JSON).
A plugin that runs a failed test again may keep the reports of the first attempt to itself, so the last one carries them all.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from parproof.cost.traffic import Traffic
from parproof.errors import UsageError
from parproof.evidence import canonical, traces
from parproof.evidence.places import without_places
from parproof.evidence.record import FIGURES
from parproof.plugin import outcomes
from parproof.plugin.ranks import RANKS
from parproof.plugin.writing import artefacts_folder

_EVIDENCE: pytest.StashKey[Evidence] = pytest.StashKey()
_ATTEMPTS: pytest.StashKey[outcomes.Attempts] = pytest.StashKey()


@dataclass
class Evidence:
    """What a test says about itself beyond pass or fail; always available, written only with --evidence."""

    workload_id: str | None = None
    workload: dict[str, Any] = field(default_factory=dict)
    measurements: dict[str, Any] = field(default_factory=dict)
    predicted: list[Traffic] = field(default_factory=list)
    predicted_for: tuple[int, tuple[str, ...]] = (0, ())
    times: list[dict[str, Any]] = field(default_factory=list)
    public: dict[str, dict[str, Any]] = field(default_factory=dict)
    model_name: str | None = None
    traces: list[str] = field(default_factory=list)
    folder: Path | None = None

    def on(self, workload_id: str, **parameters: Any) -> None:
        """Name the workload: two records are comparable only when id and parameters are equal."""
        self.workload_id, self.workload = workload_id, canonical.plain(parameters, "evidence.on")

    def measured(self, **facts: Any) -> None:
        """Numbers (plain JSON values) that were observed; names carry their units."""
        self.measurements.update(canonical.plain(facts, "evidence.measured"))

    def figures(self, **values: Any) -> None:
        """Public fields of the record that only the test knows: compute_s, communication_s, exposed_s, per_rank,
        max_over_mean, overflow, idle_ratio, wire_bytes (of each rank), sync_frequency, fallback."""
        for name, value in canonical.plain(values, "evidence.figures").items():
            if name not in FIGURES:
                raise UsageError(
                    f"no public figure {name}", expected=", ".join(FIGURES), where="evidence.figures"
                )
            self.public.setdefault(FIGURES[name], {})[name] = value

    def predict(self, traffic: Sequence[Traffic], *, rank: int = 0, within: Sequence[str] = ()) -> None:
        """What the cost model said of one rank of the test's last run, kept beside the ledger that was seen.

        within   phases that the prediction speaks of; the audit judges these, and without any the whole run
        """
        self.predicted.extend(traffic)
        self.predicted_for = rank, tuple(within)

    def timed(self, name: str, samples_s: Sequence[Sequence[float]], *, warmup: int) -> None:
        """Raw samples of one operation: samples_s[rank][repeat], in seconds, after `warmup` rounds."""
        entry = {"name": name, "samples_s": [list(s) for s in samples_s], "warmup": warmup}
        self.times.append(canonical.plain(entry, "evidence.timed"))

    def model(self, name: str) -> None:
        """The real model or backend that was run, with its revision; without one nothing is a benchmark."""
        self.model_name = str(canonical.plain(name, "evidence.model"))

    def keep_trace(self, path: Path) -> str:
        """Keep a profiler trace beside the records; returns its sha256. It must be one that can be opened again."""
        digest = traces.keep(path, self.folder)
        if digest not in self.traces:
            self.traces.append(digest)
        return digest

    def facts(self) -> dict[str, Any]:
        """All of it as plain data."""
        lines = [asdict(line) | {"members": list(line.members)} for line in self.predicted]
        rank, within = self.predicted_for
        return {
            "workload_id": self.workload_id,
            "workload": self.workload,
            "measurements": self.measurements,
            "predicted": {"rank": rank, "within": list(within), "lines": lines} if lines else None,
            "times": self.times,
            "figures": self.public,
            "model": self.model_name,
            "traces": self.traces,
        }


@pytest.fixture
def evidence(request: pytest.FixtureRequest) -> Evidence:
    """Where a test puts what it measured: see Evidence."""
    made = Evidence(folder=artefacts_folder(request.config))
    request.node.stash[_EVIDENCE] = made
    return made


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where a plugin runs a test again, nothing of the attempt before belongs to this one."""
    keys: tuple[pytest.StashKey[Any], ...] = (outcomes.HISTORY, _EVIDENCE, RANKS)
    for key in keys:
        if key in item.stash:
            del item.stash[key]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """When the test has ended, put its record on the last report, and its level and status into JUnit."""
    report = yield
    history = item.stash.setdefault(outcomes.HISTORY, [])
    history.append(outcomes.Phase.of(report, call))
    if report.when != "teardown" or not _is_ours(item):
        return report
    from parproof.evidence.record import build

    made = item.stash.get(_EVIDENCE, None)
    text = without_places(item.config.rootpath)
    record = build(outcomes.outcome_of(item, history, made.facts() if made else {}), text)
    attempts = item.stash.setdefault(_ATTEMPTS, outcomes.Attempts())
    attempts.records.append(record)
    conclusion = attempts.worst["conclusion"]
    report.user_properties += [
        ("parproof.node", record["identity"]["nodeid"]),
        ("parproof.level", conclusion["evidence_level"] or "none"),
        ("parproof.status", conclusion["status"]),
        ("parproof.reason", outcomes.reason_text(conclusion)),
        (
            "parproof.claims",
            " ".join(f"{record['identity']['semantic_id']}/{c}" for c in record["identity"]["claims"]),
        ),
    ]
    report.parproof_attempts = attempts.plain()  # type: ignore[attr-defined]
    return report


def _is_ours(item: pytest.Item) -> bool:
    """Tests that have nothing to do with ranks or experiments are left alone, unless evidence is asked for."""
    uses = {"ranks", "evidence", "subject"} & set(getattr(item, "fixturenames", ()))
    asked = item.config.getoption("--evidence") is not None
    return bool(uses) or item.get_closest_marker("experiment") is not None or asked
