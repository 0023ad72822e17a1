"""What a rank program is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from parproof.ledger.wire import WireSample, measured_wire

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

    from parproof.ledger.recorder import Recorder


@dataclass
class RankContext:
    """One rank's view of a run: `def program(ctx, *args)`.

    The default process group is initialised, so plain torch.distributed calls work too.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    host: str
    device: torch.device
    backend: str
    group: ProcessGroup
    subject: Any = None
    recorder: Recorder | None = None
    clock_samples: list[tuple[str, float]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Name the calls made inside for the ledger; phases nest as outer/inner."""
        if self.recorder is None:
            yield
            return
        outer = self.recorder.phase
        self.recorder.phase = f"{outer}/{name}" if outer else name
        try:
            yield
        finally:
            self.recorder.phase = outer

    @contextmanager
    def wire(self) -> Iterator[WireSample]:
        """Measure the bytes that leave this rank inside, headers included; see ledger.wire for what counts."""
        first = len(self.recorder.rows) if self.recorder else 0
        with measured_wire() as sample:
            yield sample
        sample.rows = (first, len(self.recorder.rows) if self.recorder else 0)
