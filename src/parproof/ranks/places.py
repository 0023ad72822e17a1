"""Which rank sits where: hosts, local ranks and devices of a pool."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from parproof.errors import UsageError
from parproof.ranks.protocol import Assignment

GROUP_TIMEOUT_S = 1800.0  # longer than any deadline: the pool tells more than a backend's timeout


@dataclass(frozen=True)
class Places:
    """`world_size` ranks in blocks of `ranks_per_host`. Fewer than all emulates hosts on this machine."""

    world_size: int
    ranks_per_host: int
    device: str

    def __post_init__(self) -> None:
        if self.world_size < 1 or self.ranks_per_host < 1:
            raise UsageError(
                f"world size {self.world_size} with {self.ranks_per_host} ranks per host",
                expected="at least 1 rank and 1 rank per host",
                where="rank pool",
            )

    @property
    def hosts_are_emulated(self) -> bool:
        """True when ranks of one machine are told that they are on several."""
        return self.ranks_per_host < self.world_size

    def assignment(self, rank: int, backend: str, directory: str) -> Assignment:
        """What the server of a rank is told."""
        return Assignment(
            rank=rank,
            world_size=self.world_size,
            local_rank=rank % self.ranks_per_host,
            local_world_size=self._local_world_size(rank),
            host=self._host(rank),
            backend=backend,
            device=self.device,
            directory=directory,
            group_timeout_s=GROUP_TIMEOUT_S,
            visible_devices=self._visible_devices(rank),
        )

    def facts(self, rank: int) -> dict[str, Any]:
        """The same for the record of a run. The device is numbered as on the machine, not as on an emulated host."""
        device = self.device if self.device == "cpu" else f"{self.device}:{rank}"
        return {
            "rank": rank,
            "local_rank": rank % self.ranks_per_host,
            "host": self._host(rank),
            "device": device,
        }

    def _host(self, rank: int) -> str:
        return f"host{rank // self.ranks_per_host}"

    def _local_world_size(self, rank: int) -> int:
        first = rank // self.ranks_per_host * self.ranks_per_host
        return min(self.ranks_per_host, self.world_size - first)

    def _visible_devices(self, rank: int) -> str | None:
        """An emulated host sees its own GPUs only: cuda:LOCAL_RANK is then a different one for every rank."""
        if self.device == "cpu" or not self.hosts_are_emulated:
            return None
        first = rank // self.ranks_per_host * self.ranks_per_host
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        names = visible.split(",") if visible else [str(index) for index in range(self.world_size)]
        return ",".join(names[first : first + self._local_world_size(rank)])
