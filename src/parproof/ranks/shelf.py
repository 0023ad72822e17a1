"""Keeps warm pools for a session, by what they were started for, and ends the least used when there are many."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from parproof.ranks.local import LocalLauncher
from parproof.ranks.pool import RankPool

MAX_WARM_RANKS = 24
_BACKENDS = {"cpu": ("gloo", "cpu"), "cuda1": ("nccl", "cuda"), "cuda2": ("nccl", "cuda")}


class PoolShelf:
    """Pools by (world size, lane, ranks per host).

    on_slow_start   is told when a start takes seconds
    preload         see LocalLauncher
    """

    def __init__(self, on_slow_start: Callable[[], None] = lambda: None, preload: Sequence[str] = ()) -> None:
        self._launcher = LocalLauncher(preload)
        self._on_slow_start = on_slow_start
        self._pools: dict[tuple[int, str, int | None], RankPool] = {}

    def pool(self, world_size: int, lane: str, ranks_per_host: int | None, *, fresh: bool) -> RankPool:
        """A pool for this key; `fresh` ends the one that ran before."""
        key = (world_size, lane, ranks_per_host)
        pool = self._pools.pop(key, None)
        if pool is None:
            backend, device = _BACKENDS[lane]
            pool = RankPool(
                world_size,
                self._launcher,
                backend=backend,
                device=device,
                ranks_per_host=ranks_per_host,
                on_slow_start=self._on_slow_start,
            )
        elif fresh:
            pool.close()
        self._pools[key] = pool
        self._make_room()
        return pool

    def losses(self) -> list[str]:
        """Ranks that died between two runs, in words, each named once."""
        return [loss for pool in self._pools.values() for loss in pool.take_losses()]

    def _make_room(self) -> None:
        """The dict keeps the order of use; the newest always stays."""
        while len(self._pools) > 1 and sum(p.world_size for p in self._pools.values()) > MAX_WARM_RANKS:
            oldest = next(iter(self._pools))
            self._pools.pop(oldest).close()

    def close(self) -> None:
        """End every pool, and what ranks that died by themselves left behind."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()
        self._launcher.sweep()
