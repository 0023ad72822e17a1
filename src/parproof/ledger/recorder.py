"""Watches one rank: writes down every communication call that passes torch's dispatcher.

That is everything torch sends: classic collectives, functional ones, DDP's C++ reducer, FSDP2, DTensor and pipelining.
Each row also goes to a journal file at once, so that it can be read after the rank was killed or aborted.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor

from parproof.ledger.callers import caller
from parproof.ledger.calls import Call, SeenCall, num_bytes, tensors_in
from parproof.ledger.interception import Interception
from parproof.ledger.rows import POINT_TO_POINT, Row
from parproof.ledger.sequence import steps

_CONTROL = frozenset({"barrier", "monitored_barrier"})


class Recorder:
    """Context manager; `rows` holds what was seen, in order, from every thread. Enter it in the rank's main thread.

    Cost      some 0.1 ms a call; other operators run at their own speed
    Not seen  a backend object called directly; the groups' own sequence numbers tell that it happened
              (`sequence_steps`). Operators that were registered while it was open.
    """

    def __init__(self, journal_fd: int | None = None) -> None:
        self.rows: list[Row] = []
        self.phase = ""
        self.sequence_steps: Counter[str] = Counter()
        self._journal_fd = journal_fd
        self._members: dict[str, tuple[int, ...]] = {}
        self._works: list[tuple[Row, Any]] = []
        self._lock = threading.RLock()
        self._home = threading.get_ident()
        # torch keeps the functional calls that an earlier program never waited for; they are not this run's.
        self._functional_before = torch._C._distributed_c10d._get_work_registry_size()

    def __enter__(self) -> Recorder:
        global _active
        self._home = threading.get_ident()
        _interception.insert()
        _active = self
        return self

    def __exit__(self, *exception: object) -> None:
        global _active
        _active = None

    def watch(self, make: Callable[[], Any], call: Call, named: dict[str, Any]) -> Any:
        """Write the call down, make it, and note how it ended."""
        if _is_only_traced(named):
            return make()
        rows = [self._note(seen) for seen in call.read(named)]
        try:
            result = make()
        except BaseException as exception:
            self._amend(rows, raised=type(exception).__name__)
            raise
        self._after(call, named, rows, result)
        return result

    def _note(self, seen: SeenCall) -> Row:
        """Write the row down before the call is made: the call may never return."""
        made = caller()
        with self._lock:
            row = Row(
                seq=len(self.rows),
                op=seen.op,
                form=seen.form,
                group=seen.group_name,
                members=self._members_of(seen),
                dtype=seen.dtype,
                shapes=seen.shapes,
                in_bytes=seen.in_bytes,
                out_bytes=seen.out_bytes,
                reduce_op=seen.reduce_op,
                peer=self._global_peer(seen),
                tag=seen.tag,
                is_async=seen.is_async and not (made.is_blocking and seen.op in POINT_TO_POINT),
                phase=self.phase,
                control=made.is_object_traffic or seen.op in _CONTROL,
                via=made.via,
                where=made.where,
                in_parts=seen.in_parts,
                out_parts=seen.out_parts,
                thread="" if threading.get_ident() == self._home else threading.current_thread().name,
            )
            self.rows.append(row)
        if self._journal_fd is not None:
            os.write(self._journal_fd, row.to_json().encode() + b"\n")
        return row

    def _after(self, call: Call, named: dict[str, Any], rows: Sequence[Row], result: Any) -> None:
        rank = dist.get_rank() if call.op == "monitored_barrier" else -1
        with self._lock:
            for row in rows:
                self.sequence_steps[row.group] += steps(row, rank)
            if call.functional and call.form != "batch":
                self._amend(rows, **_given_back(rows[0], result))
            elif named.get("async_op", True):
                self._works = [pair for pair in self._works if not pair[1].is_completed()]
                work = _work_in(result)
                if work is not None:
                    self._works.append((rows[-1], work))

    def _amend(self, rows: Sequence[Row], **changes: Any) -> None:
        with self._lock:
            for row in rows:
                self.rows[row.seq] = replace(row, **changes)

    def in_flight(self) -> tuple[str, ...]:
        """Calls that were started and have not completed."""
        pending = tuple(row.describe() for row, work in self._works if not work.is_completed())
        functional = max(0, torch._C._distributed_c10d._get_work_registry_size() - self._functional_before)
        return pending + (f"{functional} functional call(s) without wait_tensor",) * bool(functional)

    def _members_of(self, seen: SeenCall) -> tuple[int, ...]:
        if seen.group_name not in self._members:
            self._members[seen.group_name] = tuple(dist.get_process_group_ranks(seen.group()))
        return self._members[seen.group_name]

    def _global_peer(self, seen: SeenCall) -> int | None:
        """A peer outside the group stays as it was given: torch will refuse the call, not the ledger."""
        members = self._members_of(seen)
        if seen.group_peer is None or not 0 <= seen.group_peer < len(members):
            return seen.group_peer
        return members[seen.group_peer]


_active: Recorder | None = None


def _handle(make: Callable[[], Any], call: Call, named: dict[str, Any]) -> Any:
    """A thread may outlive the run that started it: its calls belong to the run that is on now."""
    return make() if _active is None else _active.watch(make, call, named)


_interception = Interception(_handle)


def stand_ready() -> None:
    """What entering the first recorder of a process does, done before."""
    _interception.insert()


def step_aside() -> None:
    """Leave torch's operators as they are, until the next recorder is entered: for times that nobody may disturb."""
    _interception.remove()


def _is_only_traced(named: dict[str, Any]) -> bool:
    """Fake and meta tensors carry no data, so nothing is sent: a compiler or a sharding rule looks at shapes."""
    for value in named.values():
        for tensor in tensors_in(value):
            if tensor.is_meta or isinstance(tensor, FakeTensor):
                return True
    return False


def _work_in(result: Any) -> Any:
    for part in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(part, torch.ScriptObject):
            return dist.Work.unbox(part)
    return None


def _given_back(row: Row, result: Any) -> dict[str, Any]:
    """A functional call shows what it gives back only when it returns."""
    if row.op == "send":
        return {"out_bytes": 0}
    return {"out_bytes": num_bytes(tensors_in(result))}
