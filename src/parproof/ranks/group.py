"""The default process group inside a rank: made, re-used when it is clean, torn down when not."""

from __future__ import annotations

import contextlib
import datetime
import gc
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import DebugLevel, set_debug_level

from parproof.ranks.context import RankContext
from parproof.ranks.protocol import Assignment, GroupState, Job
from parproof.ranks.rendezvous import open_store, under

if TYPE_CHECKING:
    from parproof.ledger.recorder import Recorder

_SETTLE_S = 0.02


class DefaultGroup:
    """Sets the process up for its rank and owns torch's default group.

    num_threads   intra-op threads a rank computes with, or None to leave torch's own choice
    """

    def __init__(self, assignment: Assignment) -> None:
        self._me = assignment
        self._made: Any = None
        self._timeout = datetime.timedelta(seconds=assignment.group_timeout_s)
        self._sequence_before: dict[str, int] = {}
        self._num_named = 0
        self._backend = ""
        self._store: Any = None
        self.num_threads: int | None = None
        os.environ.update(
            RANK=str(assignment.rank),
            WORLD_SIZE=str(assignment.world_size),
            LOCAL_RANK=str(assignment.local_rank),
            LOCAL_WORLD_SIZE=str(assignment.local_world_size),
        )
        if assignment.visible_devices is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = assignment.visible_devices
        if assignment.device == "cpu":
            # Two spinning intra-op threads a rank are 3-10x slower than one on shared cores.
            self.num_threads = 1
            _let_wakers_go_on()
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
            self.device = torch.device("cpu")
        else:
            self.device = torch.device(assignment.device, assignment.local_rank)
            torch.cuda.set_device(self.device)

    def context(self, job: Job, recorder: Recorder | None) -> RankContext:
        """The rank's view for one job, with a default group that carries nothing from earlier jobs."""
        if job.rendezvous is not None:
            self.tear_down()
            self._initialise(job, job.rendezvous)
        self._separate_names(job)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
        group: Any = dist.group.WORLD
        self._made = group
        assert group is not None
        # A program may have changed these on a group that is otherwise clean.
        set_debug_level(_debug_level(job))
        dist.distributed_c10d._set_pg_timeout(self._timeout, group)
        self._sequence_before = {group.group_name: group._get_sequence_number_for_group()}
        me = self._me
        return RankContext(
            rank=me.rank,
            world_size=me.world_size,
            local_rank=me.local_rank,
            local_world_size=me.local_world_size,
            host=me.host,
            device=self.device,
            backend=me.backend,
            group=group,
            recorder=recorder,
        )

    def _initialise(self, job: Job, rendezvous: str) -> None:
        set_debug_level(_debug_level(job))
        dist.init_process_group(
            self._me.backend,
            store=open_store(rendezvous),
            rank=self._me.rank,
            world_size=self._me.world_size,
            timeout=self._timeout,
            # Binds the communicator to its GPU and makes it now, so that a rank without one fails here by name.
            device_id=None if self.device.type == "cpu" else self.device,
        )

    def _separate_names(self, job: Job) -> None:
        """Groups of every job get the same names, as after a new start, but write to the store under the job's own.

        DTensor keeps what it has worked out, with the names of groups in it, from one program to the next.
        """
        world = dist.distributed_c10d._world
        group: Any = dist.group.WORLD
        if job.rendezvous is not None:
            self._num_named = world.group_count
            self._backend, self._store = world.pg_map[group]
        world.group_count = self._num_named
        world.pg_map[group] = (self._backend, under(self._store, f"job{job.number}"))

    def finish_device_work(self) -> None:
        """Kernels and NCCL calls run behind the program: their errors belong to it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def state_after(
        self, recorder: Recorder | None, *, failed: bool
    ) -> tuple[tuple[GroupState, ...], tuple[str, ...], bool]:
        """(state per group, calls in flight, whether this rank would re-use its default group)."""
        if failed or not dist.is_initialized():
            return (), (), False
        world = dist.distributed_c10d._world
        states = tuple(self._state(group, recorder) for group in world.pg_map)
        in_flight = _still_in_flight(recorder) if recorder else ()
        intact = dist.group.WORLD is self._made and self._made in world.pg_map
        return states, in_flight, intact and not in_flight and recorder is not None

    def _state(self, group: Any, recorder: Recorder | None) -> GroupState:
        name = group.group_name
        before = self._sequence_before.get(name, 0)
        return GroupState(
            name=name,
            members=tuple(dist.get_process_group_ranks(group)),
            sequence=group._get_sequence_number_for_group() - before,
            sequence_expected=recorder.sequence_steps[name] if recorder else -1,
        )

    def close_subgroups(self) -> None:
        """Leave every group but the default one. They are clean, so the order among the ranks does not matter."""
        made = [group for group in dist.distributed_c10d._world.pg_map if group is not self._made]
        if made:
            gc.collect()
        for group in made:
            group.abort()
            dist.destroy_process_group(group)

    def tear_down(self) -> None:
        """Close every group at once, so that peers that wait on this rank fail in milliseconds."""
        self._made = None
        if not dist.is_initialized():
            return
        gc.collect()
        for group in list(dist.distributed_c10d._world.pg_map):
            with contextlib.suppress(Exception):
                group.abort()
        with contextlib.suppress(Exception):
            dist.destroy_process_group()


def _let_wakers_go_on() -> None:
    """A rank has a dozen threads, most of which wake another one and then wait themselves. Where ranks outnumber cores,
    a thread that takes the core of the one that woke it only costs a switch more: 2 to 3 times as long for a call of 4
    ranks on 2 cores. Threads that are started from now on inherit this."""
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _still_in_flight(recorder: Recorder) -> tuple[str, ...]:
    """A backend marks a call as completed a moment after it has handed out the result (DDP's last bucket)."""
    end = time.monotonic() + _SETTLE_S
    while (pending := recorder.in_flight()) and time.monotonic() < end:
        time.sleep(0.0005)
    return pending


def _debug_level(job: Job) -> DebugLevel:
    return DebugLevel.DETAIL if job.debug_detail else DebugLevel.OFF
