"""The `ranks` fixture: rank programs on real process groups, warm between tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from parproof.errors import Unsupported
from parproof.plugin.lanes import require_lane

if TYPE_CHECKING:
    from parproof.ranks.pool import RankPool
    from parproof.ranks.run import Run
    from parproof.ranks.shelf import PoolShelf

_SHELF: pytest.StashKey[PoolShelf] = pytest.StashKey()
_STARTED: pytest.StashKey[float] = pytest.StashKey()
DEFAULT_DEADLINE_S = 60.0


@dataclass
class Ranks:
    """`ranks(4).run(program, *args)`: run a rank program on 4 ranks and wait for every one of them.

    Every run a test makes is kept in `runs`; the evidence of the test is computed from them.
    """

    shelf: PoolShelf
    lane: str
    config: pytest.Config
    deadline_left_s: Callable[[], float]
    runs: list[Run] = field(default_factory=list)

    def __call__(
        self,
        world_size: int,
        *,
        ranks_per_host: int | None = None,
        fresh: bool = False,
        deadline_s: float | None = None,
        ledger: bool = True,
        debug_detail: bool = False,
        allow_mismatch: bool = False,
    ) -> RunnableRanks:
        """Ranks of this world size.

        ranks_per_host   less than world_size emulates hosts: RANK and LOCAL_RANK then differ
        fresh            new processes, whatever ran before
        deadline_s       for one run; never more than what the test's own timeout leaves
        ledger           False for timing: the ledger costs a Python detour per operator
        debug_detail     run with TORCH_DISTRIBUTED_DEBUG=DETAIL checks
        allow_mismatch   give the run back even when the ranks' ledgers disagree
        """
        require_lane(self.config, self.lane, world_size)
        pool = self.shelf.pool(world_size, self.lane, ranks_per_host, fresh=fresh)
        options = {"ledger": ledger, "debug_detail": debug_detail, "allow_mismatch": allow_mismatch}
        return RunnableRanks(self, pool, deadline_s, options)


@dataclass
class RunnableRanks:
    """A pool with the options of one call."""

    ranks: Ranks
    pool: RankPool
    deadline_s: float | None
    options: dict[str, bool]

    def run(self, program: Callable[..., Any], *arguments: Any, **keywords: Any) -> Run:
        """Run `program(ctx, *arguments, **keywords)` on every rank. See RankPool.run for the errors."""
        __tracebackhide__ = True
        left = self.ranks.deadline_left_s()
        deadline = left if self.deadline_s is None else min(self.deadline_s, left)
        run = self.pool.run(program, *arguments, deadline_s=deadline, keywords=keywords, **self.options)
        self.ranks.runs.append(run)
        return run


@pytest.fixture
def ranks(request: pytest.FixtureRequest, lane: str) -> Iterator[Ranks]:
    """Start (or re-use) ranks: see Ranks."""
    config = request.config
    started = request.node.stash.get(_STARTED, time.monotonic())
    timeout_s = _timeout_of(request.node)
    explicit = config.getoption("--parproof-deadline")

    def left() -> float:
        if explicit is not None:
            return float(explicit)
        if not timeout_s:
            return DEFAULT_DEADLINE_S
        # The diagnosis has to be printed before pytest-timeout fires.
        margin = min(5.0, 0.25 * timeout_s)
        return float(max(0.1, timeout_s - margin - (time.monotonic() - started)))

    fixture = Ranks(_shelf(config), lane, config, left)
    request.node.stash[RANKS] = fixture
    yield fixture


RANKS: pytest.StashKey[Ranks] = pytest.StashKey()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note when the test's own timeout started to count."""
    item.stash[_STARTED] = time.monotonic()


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
    # By name: importing the pool's module here would import torch.
    if isinstance(exception, Unsupported) or type(exception).__name__ == "RankSkip":
        pytest.skip(str(exception))


def pytest_unconfigure(config: pytest.Config) -> None:
    """End every rank."""
    shelf = config.stash.get(_SHELF, None)
    if shelf is not None:
        shelf.close()


def _shelf(config: pytest.Config) -> PoolShelf:
    if _SHELF not in config.stash:
        from parproof.ranks.shelf import PoolShelf

        config.stash[_SHELF] = PoolShelf()
    return config.stash[_SHELF]


def _timeout_of(item: pytest.Item) -> float | None:
    """Seconds pytest-timeout gives this test; None without it."""
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        raw = marker.kwargs.get("timeout", marker.args[0] if marker.args else None)
    elif item.config.pluginmanager.hasplugin("timeout"):
        raw = item.config.getvalue("timeout") or item.config.getini("timeout")
    else:
        raw = None
    return float(raw) if raw else None
