"""The body in PyTorch's two multi-process test cases, as PyTorch's own tests use them."""

from __future__ import annotations

import os
import time
import unittest

import torch.distributed as dist
from rank_body import all_reduce_and_check
from torch.testing._internal.common_distributed import MultiProcContinuousTest, MultiProcessTestCase

# Ranks are spawned and import this module again: what the parent set on a class would not reach them.
WORLD = int(os.environ.get("PARPROOF_BENCH_WORLD", "2"))


class Isolated(MultiProcessTestCase):
    """New processes and a new group for every test."""

    world_size = WORLD

    def setUp(self) -> None:
        """In the parent: start the ranks."""
        super().setUp()
        self._spawn_processes()

    def test_body(self) -> None:
        """In every rank."""
        store = dist.FileStore(self.file_name, self.world_size)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.world_size)
        all_reduce_and_check(self.rank, self.world_size)
        dist.destroy_process_group()


class Continuous(MultiProcContinuousTest):
    """The same processes and the same group for all tests of the class."""

    world_size = WORLD

    @classmethod
    def backend_str(cls) -> str:
        """CPU ranks."""
        return "gloo"

    @classmethod
    def device_type(cls) -> str:
        """CPU ranks."""
        return "cpu"

    def test_body(self) -> None:
        """In every rank."""
        all_reduce_and_check(self.rank, self.world_size)


def seconds_of(case: type[unittest.TestCase]) -> float:
    """One test through unittest, without its output. Raises when it did not pass."""
    result = unittest.TestResult()
    started = time.perf_counter()
    case("test_body").run(result)
    took_s = time.perf_counter() - started
    if not result.wasSuccessful() or result.skipped:
        raise RuntimeError(f"{case.__name__}: {result.errors or result.failures or result.skipped}")
    return took_s


def restart_continuous() -> float:
    """End the ranks of the continuous class, so that its next test starts new ones."""
    if Continuous._processes_spawned:
        Continuous.tearDownClass()
        Continuous._processes_spawned = False
    return 0.0
