"""The `timings` fixture: times that were measured in the ranks, into the evidence and into pytest-benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from parproof.plugin.evidence import Evidence


class ReplayClock:
    """A timer that pytest-benchmark reads, and that moves only by what the ranks had measured."""

    def __init__(self) -> None:
        self._now = 0.0
        self._left: list[float] = []

    def __call__(self) -> float:
        """Seconds, as pytest-benchmark asks for them."""
        return self._now

    def replay(self, benchmark: object, samples_s: Sequence[float]) -> None:
        """One round a sample; pedantic is pytest-benchmark's public way to be told how often."""
        self._left = list(samples_s)
        benchmark.pedantic(self._advance, rounds=len(samples_s), iterations=1, warmup_rounds=0)  # type: ignore[attr-defined]

    def _advance(self) -> None:
        self._now += self._left.pop(0)


@dataclass
class Timings:
    """What a test has timed. The benchmark of a test is its last timing; the others are in its extra_info."""

    evidence: Evidence
    request: pytest.FixtureRequest
    clock: ReplayClock
    medians_s: dict[str, float] = field(default_factory=dict)
    slowest_s: list[float] = field(default_factory=list)

    def record(self, name: str, samples_s: Sequence[Sequence[float]], *, warmup: int) -> None:
        """samples_s[rank][repeat] of one operation; a call takes as long as its slowest rank."""
        self.evidence.timed(name, samples_s, warmup=warmup)
        self.slowest_s = [max(of_ranks) for of_ranks in zip(*samples_s, strict=True)]
        self.medians_s[name] = sorted(self.slowest_s)[len(self.slowest_s) // 2]

    def publish(self) -> None:
        """Hand the last timing to pytest-benchmark."""
        self.request.node.add_marker(pytest.mark.benchmark(timer=self.clock))
        benchmark = self.request.getfixturevalue("benchmark")
        benchmark.extra_info.update(median_s=self.medians_s)
        self.clock.replay(benchmark, self.slowest_s)


@pytest.fixture
def timings(request: pytest.FixtureRequest, evidence: Evidence) -> Timings:
    """Where a test puts times; skips, with the reason, where none can be measured."""
    reason = not_measured(request.config)
    if reason is not None:
        pytest.skip(f"not measured: {reason}")
    return Timings(evidence, request, ReplayClock())


def not_measured(config: pytest.Config) -> str | None:
    """Why times mean nothing in this session, or None."""
    # Not the variable that pytest-xdist sets: a session that a worker's test starts inherits it, and is no worker.
    if hasattr(config, "workerinput"):
        return "other workers share the cores; run it with -n 0"
    if not config.pluginmanager.hasplugin("benchmark"):
        return "pytest-benchmark is not loaded; install it, or leave out -p no:benchmark"
    if config.getoption("benchmark_disable", False):
        return "--benchmark-disable was given; leave it out"
    return None
