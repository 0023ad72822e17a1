"""The `evidence` fixture, and from test outcomes to an evidence directory and JUnit properties.

The record is built where the test ran and travels on the report (xdist ships extra attributes of a report as JSON);
only the controller writes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from parproof.cost.traffic import Traffic
from parproof.errors import ParproofError, UsageError
from parproof.evidence import canonical
from parproof.evidence.places import without_places
from parproof.evidence.record import FIGURES
from parproof.plugin import outcomes

if TYPE_CHECKING:
    from parproof.evidence.store import EvidenceStore

_EVIDENCE: pytest.StashKey[Evidence] = pytest.StashKey()
_DESELECTED = "parproof_deselected"
_WRITER: pytest.StashKey[Writer] = pytest.StashKey()


@dataclass
class Evidence:
    """What a test says about itself beyond pass or fail; always available, written only with --evidence."""

    workload_id: str | None = None
    workload: dict[str, Any] = field(default_factory=dict)
    measurements: dict[str, Any] = field(default_factory=dict)
    predicted: list[Traffic] = field(default_factory=list)
    predicted_rank: int = 0
    times: list[dict[str, Any]] = field(default_factory=list)
    public: dict[str, dict[str, Any]] = field(default_factory=dict)

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

    def predict(self, traffic: Sequence[Traffic], *, rank: int = 0) -> None:
        """What the cost model said of one rank of the test's last run, kept beside the ledger that was seen."""
        self.predicted.extend(traffic)
        self.predicted_rank = rank

    def timed(self, name: str, samples_s: Sequence[Sequence[float]], *, warmup: int) -> None:
        """Raw samples of one operation: samples_s[rank][repeat], in seconds, after `warmup` rounds."""
        entry = {"name": name, "samples_s": [list(s) for s in samples_s], "warmup": warmup}
        self.times.append(canonical.plain(entry, "evidence.timed"))

    def facts(self) -> dict[str, Any]:
        """All of it as plain data."""
        lines = [asdict(line) | {"members": list(line.members)} for line in self.predicted]
        return {
            "workload_id": self.workload_id,
            "workload": self.workload,
            "measurements": self.measurements,
            "predicted": {"rank": self.predicted_rank, "lines": lines} if lines else None,
            "times": self.times,
            "figures": self.public,
        }


@pytest.fixture
def evidence(request: pytest.FixtureRequest) -> Evidence:
    """Where a test puts what it measured: see Evidence."""
    made = Evidence()
    request.node.stash[_EVIDENCE] = made
    return made


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
    conclusion = record["conclusion"]
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
    report.parproof_record = record  # type: ignore[attr-defined]
    return report


def _is_ours(item: pytest.Item) -> bool:
    """Tests that have nothing to do with ranks or experiments are left alone, unless evidence is asked for."""
    uses = {"ranks", "evidence", "subject"} & set(getattr(item, "fixturenames", ()))
    asked = item.config.getoption("--evidence") is not None
    return bool(uses) or item.get_closest_marker("experiment") is not None or asked


class Worker:
    """In a worker of xdist: what only a worker sees travels in its output."""

    def __init__(self, output: dict[str, Any]) -> None:
        self._output = output

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Counted here, told at the end."""
        self._output[_DESELECTED] = self._output.get(_DESELECTED, 0) + len(items)


class Writer:
    """Controller only: takes records off the reports and closes the directory at the end."""

    def __init__(self, store: EvidenceStore, text: Callable[[str], str]) -> None:
        self.store = store
        self.text = text
        self.collected: list[str] = []
        self.collection_errors: list[str] = []
        self.num_deselected = 0
        self.error: str | None = None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """What was collected here; under xdist the workers tell (below)."""
        self.collected = self.collected or [self.text(item.nodeid) for item in session.items]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """All workers collect the same."""
        self.collected = [self.text(nodeid) for nodeid in ids]

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Counted, so that a selection does not look like the whole."""
        self.num_deselected += len(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Under xdist it is the workers who deselect, all the same."""
        told = getattr(node, "workeroutput", {}).get(_DESELECTED, 0)
        self.num_deselected = max(self.num_deselected, told)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that could not be read hides tests that nobody can count."""
        if report.failed and self.text(report.nodeid) not in self.collection_errors:
            self.collection_errors.append(self.text(report.nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a record; a report without one is of a worker that crashed."""
        record = getattr(report, "parproof_record", None)
        if record is None and report.when not in ("setup", "call", "teardown"):
            record = outcomes.crashed(report, self.text)
        if record is None or self.error:
            return
        try:
            self.store.add(record)
        except (OSError, ValueError) as error:
            self._give_up(error)

    def finish(self, exit_status: int, *, complete: bool) -> None:
        """Seal, or leave nothing."""
        if self.error:
            return
        try:
            self.store.seal(
                collected=self.collected,
                collection_errors=self.collection_errors,
                num_deselected=self.num_deselected,
                exit_status=exit_status,
                complete=complete and not self.collection_errors,
            )
        except (OSError, ValueError) as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Tests go on, the run fails at its end, and no part of the evidence stays."""
        self.store.discard()
        self.error = f"evidence could not be written, nothing was left: {error}"


def pytest_configure(config: pytest.Config) -> None:
    """With --evidence: make sure, before any test runs, that the directory can be written."""
    directory = config.getoption("--evidence")
    if directory is None or config.option.collectonly:
        return
    if config.getoption("--parproof-mutants"):
        raise pytest.UsageError(
            "--evidence with --parproof-mutants: a killed mutant passes and proves no subject"
        )
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Worker(vars(config)["workeroutput"]), "parproof-evidence-worker")
        return
    from parproof.evidence.store import EvidenceStore

    text = without_places(config.rootpath)
    arguments = [str(argument) for argument in config.invocation_params.args]
    store = EvidenceStore(
        Path(config.invocation_params.dir, directory),
        root=config.rootpath,
        command=["pytest", *map(text, arguments)],
        label=config.getoption("--parproof-run-label"),
    )
    try:
        store.open()
    except ParproofError as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[_WRITER] = Writer(store, text)
    config.pluginmanager.register(config.stash[_WRITER], "parproof-evidence-writer")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """An interrupted session is sealed too, and says that it is not complete."""
    writer = session.config.stash.get(_WRITER, None)
    if writer is None:
        return
    complete = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    writer.finish(int(exitstatus), complete=complete)
    if writer.error:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def pytest_unconfigure(config: pytest.Config) -> None:
    """A session that never got to its end leaves no half-written directory."""
    writer = config.stash.get(_WRITER, None)
    if writer is not None:
        writer.store.discard()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Where the evidence is, or why there is none."""
    writer = config.stash.get(_WRITER, None)
    if writer is not None:
        text = writer.error or f"evidence: {writer.store.directory}"
        terminalreporter.line(text, red=bool(writer.error))
