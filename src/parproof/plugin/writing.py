"""Writing an evidence directory: only the controller writes, at the end, whole or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from parproof.errors import ParproofError
from parproof.evidence.places import without_places
from parproof.plugin import outcomes

if TYPE_CHECKING:
    from parproof.evidence.store import EvidenceStore

_DESELECTED = "parproof_deselected"
ARTEFACTS = "parproof_artefacts"
"""Key of a worker's input: the folder its tests may keep files in."""
WRITER: pytest.StashKey[Writer] = pytest.StashKey()


def artefacts_folder(config: pytest.Config) -> Path | None:
    """Where tests of this process may keep files; None without --evidence."""
    told = getattr(config, "workerinput", {}).get(ARTEFACTS)
    if told is not None:
        return Path(told)
    writer = config.stash.get(WRITER, None)
    return writer.store.artefacts if writer is not None and not writer.error else None


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
        self._written: Counter[str] = Counter()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """A worker of xdist is told where its tests may keep files."""
        node.workerinput[ARTEFACTS] = str(self.store.artefacts)

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
        """Write what no report has told before; a report without a record is of a worker that crashed."""
        told = getattr(report, "parproof_attempts", None)
        records = []
        if told is not None:
            records = told["records"][self._written[told["key"]] :]
            self._written[told["key"]] += len(records)
        elif report.when not in ("setup", "call", "teardown"):
            records = [outcomes.crashed(report, self.text)]
        try:
            for record in records if not self.error else ():
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
    config.stash[WRITER] = Writer(store, text)
    config.pluginmanager.register(config.stash[WRITER], "parproof-evidence-writer")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """An interrupted session is sealed too, and says that it is not complete."""
    writer = session.config.stash.get(WRITER, None)
    if writer is None:
        return
    complete = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if exitstatus == pytest.ExitCode.OK and writer.store.tally.unexpected:
        # A plugin ran a test again, or called a failure by another name: what was seen stays seen.
        exitstatus = session.exitstatus = pytest.ExitCode.TESTS_FAILED
    writer.finish(int(exitstatus), complete=complete)
    if writer.error:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def pytest_unconfigure(config: pytest.Config) -> None:
    """A session that never got to its end leaves no half-written directory."""
    writer = config.stash.get(WRITER, None)
    if writer is not None:
        writer.store.discard()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Where the evidence is, or why there is none."""
    writer = config.stash.get(WRITER, None)
    if writer is not None:
        text = writer.error or f"evidence: {writer.store.directory} (digest {writer.store.digest})"
        terminalreporter.line(text, red=bool(writer.error))
        for nodeid in writer.store.tally.flaky:
            terminalreporter.line(f"flaky: {nodeid} did not end alike each time; the worst counts", red=True)
