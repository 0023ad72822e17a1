"""What torch ships for overlap: functional collectives, whose results are waited for when they are used."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch.distributed._functional_collectives as funcol
from torch import Tensor
from torch.distributed import ProcessGroup

from parproof.errors import Unsupported
from parproof.subjects.overlap_protocol import Communication, Hotspot, Interval, Mitigation, TimelineSummary


class Overlap:
    """The exchange only: torch records traces and leaves their reading to others."""

    def exchange_and_compute(
        self, bucket: Tensor, work: Callable[[], Tensor], group: ProcessGroup, *, overlapped: bool
    ) -> tuple[Tensor, Tensor]:
        """See the protocol."""
        total = funcol.all_reduce(bucket, "sum", group)
        if not overlapped:
            total = funcol.wait_tensor(total)
        computed = work()
        return funcol.wait_tensor(total), computed

    def summarize(
        self, communication: Sequence[Communication], compute: Sequence[Interval]
    ) -> TimelineSummary:
        """Not torch's."""
        raise Unsupported("torch does not analyse time lines")

    def rank_imbalance(self, elapsed_ms: Sequence[float]) -> float:
        """Not torch's."""
        raise Unsupported("torch does not analyse time lines")

    def mitigate(self, hotspots: Sequence[Hotspot]) -> Mitigation:
        """Not torch's."""
        raise Unsupported("torch does not advise")
