"""The `ranks` fixture: rank programs on real process groups, warm between tests."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from parproof.errors import Unsupported
from parproof.plugin.lanes import require_lane
from parproof.ranks.failure import RankSkip
from parproof.ranks.programs import program_reference
from parproof.ranks.results import pickled_arguments

if TYPE_CHECKING:
    from parproof.ranks.pool import RankPool
    from parproof.ranks.run import Run
    from parproof.ranks.shelf import PoolShelf

_SHELF: pytest.StashKey[PoolShelf] = pytest.StashKey()
_STARTED: pytest.StashKey[float] = pytest.StashKey()
_KEPT: pytest.StashKey[tuple[str, dict[Any, Run]]] = pytest.StashKey()
DEFAULT_DEADLINE_S = 60.0


@dataclass
class Ranks:
    """`ranks(4).run(program, *args)`: run a rank program on 4 ranks and wait for every one of them.

    Every run a test makes is kept in `runs`; the evidence of the test is computed from them.
    """

    lane: str
    config: pytest.Config
    deadline_left_s: Callable[[], float]
    # pytest shows the arguments of a failed test: megabytes of tensors would take it seconds to print.
    kept: dict[Any, Run] = field(default_factory=dict, repr=False)
    runs: list[Run] = field(default_factory=list, repr=False)
    failed_runs: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def __call__(
        self,
        world_size: int,
        *,
        ranks_per_host: int | None = None,
        fresh: bool = False,
        deadline_s: float | None = None,
        patience_s: float | None = None,
        ledger: bool = True,
        debug_detail: bool = False,
        allow_mismatch: bool = False,
    ) -> RunnableRanks:
        """Ranks of this world size.

        ranks_per_host   less than world_size emulates hosts: RANK and LOCAL_RANK then differ
        fresh            new processes, whatever ran before
        deadline_s       for one run; never more than what the test's own timeout leaves
        patience_s       what a backend is given to speak for itself once the ledgers prove that the run cannot end
        ledger           False for timing: the ledger adds 0.1 to 0.2 ms of CPU to each communication call
        debug_detail     run with TORCH_DISTRIBUTED_DEBUG=DETAIL checks
        allow_mismatch   give the run back even when the ranks' ledgers disagree
        """
        require_lane(self.config, self.lane, world_size)
        pool = _shelf(self.config).pool(world_size, self.lane, ranks_per_host, fresh=fresh)
        options: dict[str, Any] = {
            "ledger": ledger,
            "debug_detail": debug_detail,
            "allow_mismatch": allow_mismatch,
        }
        if patience_s is not None:
            options["patience_s"] = patience_s
        if fresh:
            self.kept.clear()
        return RunnableRanks(self, pool, deadline_s, options)


@dataclass
class RunnableRanks:
    """A pool with the options of one call."""

    ranks: Ranks
    pool: RankPool
    deadline_s: float | None
    options: dict[str, Any]

    def run(self, program: Callable[..., Any], *arguments: Any, **keywords: Any) -> Run:
        """Run `program(ctx, *arguments, **keywords)` on every rank. See RankPool.run for the errors."""
        __tracebackhide__ = True
        # Loading torch for the first ranks takes seconds: they count against the test's time, not the program's.
        self.pool.start(self.ranks.deadline_left_s())
        left = self.ranks.deadline_left_s()
        deadline = left if self.deadline_s is None else min(self.deadline_s, left)
        placement = self.pool.placement()
        try:
            run = self.pool.run(program, *arguments, deadline_s=deadline, keywords=keywords, **self.options)
        except AssertionError as failure:
            kinds = getattr(failure, "kinds", {})
            self.ranks.failed_runs.append(placement | {"problems": {str(r): k for r, k in kinds.items()}})
            raise
        self.ranks.runs.append(run)
        return run

    def run_once(self, program: Callable[..., Any], *arguments: Any, **keywords: Any) -> Run:
        """Like `run`, but a run of this module with the same program and arguments is given again.

        For claims that judge different sides of one run. It counts as evidence of every test that asks for it.
        """
        __tracebackhide__ = True
        called = program_reference(program)
        given = pickled_arguments(called, arguments, keywords)
        key = self.ranks.lane, self.pool.world_size, self.pool.places, *self.options.items(), called, given
        if key in self.ranks.kept:
            self.ranks.runs.append(self.ranks.kept[key])
        else:
            self.ranks.kept[key] = self.run(program, *arguments, **keywords)
        return self.ranks.kept[key]


@pytest.fixture
def ranks(request: pytest.FixtureRequest, lane: str) -> Iterator[Ranks]:
    """Start (or re-use) ranks: see Ranks."""
    config = request.config
    started = request.node.stash.get(_STARTED, time.monotonic())
    timeout_s = timeout_of(request.node)
    explicit = config.getoption("--parproof-deadline")

    def left() -> float:
        if explicit is not None:
            return float(explicit)
        if not timeout_s:
            return DEFAULT_DEADLINE_S
        # The diagnosis has to be printed before pytest-timeout fires.
        margin = min(5.0, 0.25 * timeout_s)
        return float(max(0.1, timeout_s - margin - (time.monotonic() - started)))

    fixture = Ranks(lane, config, left, _kept_of(request))
    request.node.stash[RANKS] = fixture
    yield fixture
    _warn_of_losses(config, request.node.nodeid)


RANKS: pytest.StashKey[Ranks] = pytest.StashKey()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Whoever selects the cpu lane will need ranks: torch loads on another core while tests are collected."""
    config = session.config
    expression = config.option.markexpr or ""
    selected = re.search(r"\bcpu\b", expression) and not re.search(r"\bnot\b", expression)
    distributes = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if selected and not distributes and not config.option.collectonly:
        _shelf(config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """While torch loads for the ranks, load what their tests need here. It stays to the end: to look through all of it
    for garbage again and again would take seconds."""
    if _SHELF in session.config.stash and session.items:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, which no test here can mend
            for name in _own_modules():
                with suppress(ImportError):
                    importlib.import_module(name)
        gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Note when the test's own timeout started to count."""
    item.stash[_STARTED] = time.monotonic()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[Any]:
    """A skip that every rank asked for, or a capability a subject does not have, is the test's skip."""
    try:
        return (yield)
    except BaseException as exception:
        _skip_if_lacking(exception)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The same for a fixture that makes the subject's implementation."""
    try:
        return (yield)
    except BaseException as exception:
        _skip_if_lacking(exception)
        raise


def _skip_if_lacking(exception: BaseException) -> None:
    if isinstance(exception, (Unsupported, RankSkip)):
        pytest.skip(str(exception))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End every rank. pytest has just looked for garbage among all there is, and will again: the rest may stay."""
    shelf = config.stash.get(_SHELF, None)
    if shelf is not None:
        shelf.close()
        gc.freeze()


def _kept_of(request: pytest.FixtureRequest) -> dict[Any, Run]:
    """Runs of this module only: those of the one before are dropped."""
    module = request.node.nodeid.partition("::")[0]
    kept = request.config.stash.get(_KEPT, None)
    if kept is None or kept[0] != module:
        kept = request.config.stash[_KEPT] = (module, {})
    return kept[1]


def _shelf(config: pytest.Config) -> PoolShelf:
    if _SHELF not in config.stash:
        from parproof.ranks.shelf import PoolShelf

        config.stash[_SHELF] = PoolShelf(lambda: _say_that_torch_loads(config), preload=_own_modules())
    return config.stash[_SHELF]


def _own_modules() -> list[str]:
    """Rank programs and subjects of this package, which every new rank would otherwise load at its first run."""
    from parproof import programs, workloads
    from parproof.subjects import reference, torch_native

    return [
        f"{package.__name__}.{module.name}"
        for package in (programs, workloads, reference, torch_native)
        for module in pkgutil.iter_modules(package.__path__)
    ]


def _say_that_torch_loads(config: pytest.Config) -> None:
    """With -v only: it happens once a session and takes seconds in which nothing else is seen."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    capture = config.pluginmanager.getplugin("capturemanager")
    if reporter is None or config.get_verbosity() < 1:
        return
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        reporter.write_line("")
        reporter.write_line("parproof: loading torch for the ranks, once a session …")


def _warn_of_losses(config: pytest.Config, nodeid: str) -> None:
    """A rank that died between two tests was replaced. Said, but not held against the test that found it."""
    shelf = config.stash.get(_SHELF, None)
    for loss in shelf.losses() if shelf else ():
        message = warnings.WarningMessage(
            pytest.PytestWarning(f"{loss}; it was replaced"), pytest.PytestWarning, __file__, 0
        )
        config.hook.pytest_warning_recorded.call_historic(
            kwargs={"warning_message": message, "when": "runtest", "nodeid": nodeid, "location": None}
        )


def timeout_of(item: pytest.Item) -> float | None:
    """Seconds pytest-timeout gives this test, found in its order: marker, option, environment, ini file.

    None without the plugin; 0 means no limit, as it does there.
    """
    config = item.config
    if not config.pluginmanager.hasplugin("timeout"):
        return None
    marker = item.get_closest_marker("timeout")
    found = None
    if marker is not None:
        found = marker.kwargs.get("timeout", marker.args[0] if marker.args else None)
    for source in (config.getvalue("timeout"), os.environ.get("PYTEST_TIMEOUT"), config.getini("timeout")):
        if found is None and source not in (None, ""):
            found = source
    return float(found) if found is not None else None
