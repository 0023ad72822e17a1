"""Keeps warm pools for a session, by what they were started for, and ends the least used when there are many."""

from __future__ import annotations

from parproof.ranks.launch import LocalLauncher
from parproof.ranks.pool import RankPool

MAX_WARM_RANKS = 24
_BACKENDS = {"cpu": ("gloo", "cpu"), "cuda1": ("nccl", "cuda"), "cuda2": ("nccl", "cuda")}


class PoolShelf:
    """Pools by (world size, lane, ranks per host)."""

    def __init__(self) -> None:
        self._launcher = LocalLauncher()
        self._pools: dict[tuple[int, str, int | None], RankPool] = {}

    def pool(self, world_size: int, lane: str, ranks_per_host: int | None, *, fresh: bool) -> RankPool:
        """A pool for this key; `fresh` ends the one that ran before."""
        key = (world_size, lane, ranks_per_host)
        pool = self._pools.pop(key, None)
        if pool is None:
            backend, device = _BACKENDS[lane]
            pool = RankPool(
                world_size, self._launcher, backend=backend, device=device, ranks_per_host=ranks_per_host
            )
        elif fresh:
            pool.close()
        self._pools[key] = pool
        self._make_room()
        return pool

    def _make_room(self) -> None:
        """The dict keeps the order of use; the newest always stays."""
        while len(self._pools) > 1 and sum(p.world_size for p in self._pools.values()) > MAX_WARM_RANKS:
            oldest = next(iter(self._pools))
            self._pools.pop(oldest).close()

    def close(self) -> None:
        """End every pool."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()
