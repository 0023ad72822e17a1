"""`--parproof-mutants`: the claims run against subjects that are wrong on purpose, and must fail.

A test that fails with the mutant's expected text has killed it and passes; other failures stay failures.
When a (mutant, claim) pair is killed, its remaining cases are skipped. A pair that survives fails the session.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from pathlib import Path

import pytest

from parproof.mutants import Mutant, catalogue
from parproof.plugin.lanes import parameters_of
from parproof.plugin.subjects import uses_our_subject
from parproof.subjects.protocol import SubjectRef

_STATE: pytest.StashKey[KillMatrix] = pytest.StashKey()


class KillMatrix:
    """Verdicts by (mutant, claim): the witness and its text once killed, else None."""

    def __init__(self) -> None:
        self.witness: dict[tuple[str, str], tuple[str, str] | None] = {}
        self.mutants = {mutant.name: mutant for mutant in catalogue()}

    def survivors(self) -> list[tuple[str, str]]:
        """Pairs that no collected test has killed."""
        return [pair for pair, witness in self.witness.items() if witness is None]

    def rows(self) -> list[dict[str, object]]:
        """The matrix as plain data."""
        return [
            {
                "mutant": name,
                "experiment": self.mutants[name].experiment,
                "claim": claim,
                "lie": self.mutants[name].lie,
                "killed": witness is not None,
                "witness": witness[0] if witness else None,
                "text": witness[1] if witness else None,
            }
            for (name, claim), witness in sorted(self.witness.items())
        ]


def pytest_configure(config: pytest.Config) -> None:
    """Keep the matrix when asked for."""
    if not config.getoption("--parproof-mutants"):
        if config.getoption("--parproof-kill-matrix"):
            raise pytest.UsageError("--parproof-kill-matrix needs --parproof-mutants")
        return
    if config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        raise pytest.UsageError(
            "--parproof-mutants keeps one kill matrix and runs in one process; next: run it without -n"
        )
    config.stash[_STATE] = KillMatrix()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise `subject` by the mutants that this test's claims have to kill."""
    state = metafunc.config.stash.get(_STATE, None)
    if state is None or not uses_our_subject(metafunc):
        return
    experiment = metafunc.definition.get_closest_marker("experiment")
    claims = _claims(metafunc.definition)
    chosen = [
        mutant
        for mutant in catalogue()
        if experiment is not None and mutant.experiment == experiment.args[0] and claims & set(mutant.kills)
    ]
    for mutant in chosen:
        for claim in claims & set(mutant.kills):
            state.witness.setdefault((mutant.name, claim), None)
    params = [pytest.param(mutant.address, id=mutant.name) for mutant in chosen]
    metafunc.parametrize("subject", params, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only tests with a mutant are of use here."""
    if config.stash.get(_STATE, None) is None:
        return
    kept = [item for item in items if _is_witness(item)]
    config.hook.pytest_deselected(items=[item for item in items if not _is_witness(item)])
    items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Nothing is learnt from killing a mutant twice."""
    state = item.config.stash.get(_STATE, None)
    mutant = _mutant_of(item)
    if state is None or mutant is None:
        return
    pairs = [(mutant.name, claim) for claim in _claims(item) & set(mutant.kills)]
    if all(state.witness.get(pair) for pair in pairs):
        pytest.skip(f"{mutant.name} is already killed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge the outcome: failing as expected is passing here."""
    report = yield
    state = item.config.stash.get(_STATE, None)
    mutant = _mutant_of(item)
    if state is None or mutant is None or call.when != "call":
        return report
    text = str(call.excinfo.value) if call.excinfo else ""
    for claim in _claims(item) & set(mutant.kills):
        if report.failed and re.search(mutant.kills[claim], text, re.DOTALL):
            state.witness[mutant.name, claim] = (item.nodeid, text.split("\n", 1)[0])
    if report.failed and all(state.witness.get((mutant.name, c)) for c in _claims(item) & set(mutant.kills)):
        report.outcome = "passed"
        report.longrepr = None
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the matrix; a survivor fails the session."""
    state = session.config.stash.get(_STATE, None)
    if state is None:
        return
    path = session.config.getoption("--parproof-kill-matrix")
    if path:
        Path(path).write_text(json.dumps(state.rows(), indent=1))
    if state.survivors() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how many died and name who lived."""
    state = config.stash.get(_STATE, None)
    if state is None:
        return
    survivors = state.survivors()
    terminalreporter.section("mutants")
    terminalreporter.line(
        f"{len(state.witness) - len(survivors)} of {len(state.witness)} (mutant, claim) killed"
    )
    for name, claim in survivors:
        terminalreporter.line(f"SURVIVED {name} against {claim}: {state.mutants[name].lie}", red=True)


def _is_witness(item: pytest.Item) -> bool:
    mutant = _mutant_of(item)
    return mutant is not None and mutant.witness in item.nodeid


def _claims(node: pytest.Item) -> set[str]:
    return {claim for marker in node.iter_markers("claim") for claim in marker.args}


def _mutant_of(item: pytest.Item) -> Mutant | None:
    address = parameters_of(item).get("subject")
    if isinstance(address, SubjectRef):
        address = address.address
    return next((mutant for mutant in catalogue() if mutant.address == address), None)
