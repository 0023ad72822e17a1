"""The `evidence` fixture and the writing of an evidence directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from parproof.cost.traffic import Traffic


@dataclass
class Evidence:
    """What a test says about itself beyond pass or fail; always available, written only with --evidence."""

    workload_id: str | None = None
    workload: dict[str, Any] = field(default_factory=dict)
    measurements: dict[str, Any] = field(default_factory=dict)
    predicted: list[Traffic] = field(default_factory=list)
    times: list[dict[str, Any]] = field(default_factory=list)

    def on(self, workload_id: str, **parameters: Any) -> None:
        """Name the workload: two records are comparable only when id and parameters are equal."""
        self.workload_id, self.workload = workload_id, parameters

    def measured(self, **facts: Any) -> None:
        """Numbers (plain JSON values) that were observed; names carry their units."""
        self.measurements.update(facts)

    def predict(self, traffic: Sequence[Traffic]) -> None:
        """What the cost model said, kept beside the ledger that was seen."""
        self.predicted.extend(traffic)

    def timed(self, name: str, samples_s: Sequence[Sequence[float]], *, warmup: int) -> None:
        """Raw samples of one operation: samples_s[rank][repeat], in seconds, after `warmup` rounds."""
        self.times.append({"name": name, "samples_s": [list(s) for s in samples_s], "warmup": warmup})


@pytest.fixture
def evidence() -> Evidence:
    """Where a test puts what it measured: see Evidence."""
    return Evidence()
