"""Watches one rank: a dispatch mode that writes down every communication call.

Everything torch sends goes through the dispatcher: classic collectives, functional ones, DDP's C++ reducer,
FSDP2, DTensor and pipelining. Each row also goes to a journal file at once, so that it can be read after the
rank was killed or aborted.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from parproof.ledger.calls import CALLS, Call, SeenCall, tensors_in
from parproof.ledger.rows import Row

_TORCH_DIRECTORY = os.path.dirname(torch.__file__) + os.sep
_OWN_DIRECTORIES = tuple(
    os.path.join(os.path.dirname(os.path.dirname(__file__)), part) + os.sep for part in ("ledger", "ranks")
)
_PLUMBING = frozenset(
    {"wrapper", "_wrapped_call_impl", "_call_impl", "__call__", "inner", "_fn", "decorate_context"}
)
_OBJECT_FUNCTIONS = frozenset(
    {
        "all_gather_object",
        "broadcast_object_list",
        "gather_object",
        "scatter_object_list",
        "send_object_list",
        "recv_object_list",
    }
)


class Recorder(TorchDispatchMode):
    """Context manager; `rows` holds what was seen, in order.

    Cost: every dispatched operator takes a Python detour while it is active (a tiny DDP step about doubles).
    Not seen: calls made in threads the program starts by itself; `sequence_expected` shows that they occurred.
    """

    supports_higher_order_operators = True

    def __init__(self, journal_fd: int | None = None) -> None:
        super().__init__()
        self.rows: list[Row] = []
        self.phase = ""
        self.sequence_steps: Counter[str] = Counter()
        self._journal_fd = journal_fd
        self._members: dict[str, tuple[int, ...]] = {}
        self._works: list[tuple[Row, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(_unwraps_itself(kind) for kind in types):
            return NotImplemented
        call = (
            CALLS.get(func._overloadpacket._qualified_op_name) if hasattr(func, "_overloadpacket") else None
        )
        if call is None:
            return func(*args, **kwargs)
        named = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        rows = [self._note(seen) for seen in call.read(named)]
        result = func(*args, **kwargs)
        self._after(call, named, rows, result)
        return result

    def _note(self, seen: SeenCall) -> Row:
        """Write the row down before the call is made: the call may never return."""
        via, where, control = _caller()
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
            is_async=seen.is_async,
            phase=self.phase,
            control=control or seen.op in ("barrier", "monitored_barrier"),
            via=via,
            where=where,
        )
        self.rows.append(row)
        if self._journal_fd is not None:
            os.write(self._journal_fd, row.to_json().encode() + b"\n")
        return row

    def _after(self, call: Call, named: dict[str, Any], rows: list[Row], result: Any) -> None:
        for row in rows:
            self.sequence_steps[row.group] += _sequence_steps(row)
        if call.functional:
            self.rows[-1] = _with_output(rows[-1], result)
        elif named.get("async_op", True):
            self._works = [pair for pair in self._works if not pair[1].is_completed()]
            work = _work_in(result)
            if work is not None:
                self._works.append((rows[-1], work))

    def in_flight(self) -> tuple[str, ...]:
        """Calls that were started and have not completed."""
        pending = tuple(row.describe() for row, work in self._works if not work.is_completed())
        functional = torch._C._distributed_c10d._get_work_registry_size()
        return pending + (f"{functional} functional call(s) without wait_tensor",) * bool(functional)

    def _members_of(self, seen: SeenCall) -> tuple[int, ...]:
        if seen.group_name not in self._members:
            self._members[seen.group_name] = tuple(dist.get_process_group_ranks(seen.group()))
        return self._members[seen.group_name]

    def _global_peer(self, seen: SeenCall) -> int | None:
        if seen.group_peer is None or seen.group_peer < 0:
            return seen.group_peer
        return self._members_of(seen)[seen.group_peer]


def _unwraps_itself(kind: type) -> bool:
    """Tensor subclasses such as DTensor run their own dispatch first and call plain operators inside.

    Fake tensors (DTensor's sharding propagation) wait for their mode and would refuse after us.
    """
    return (
        kind is not torch.Tensor
        and kind is not torch.nn.Parameter
        and kind is not FakeTensor
        and kind.__torch_dispatch__ is not (torch.Tensor.__torch_dispatch__)
    )


def _work_in(result: Any) -> Any:
    for part in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(part, torch.ScriptObject):
            return dist.Work.unbox(part)
    return None


def _with_output(row: Row, result: Any) -> Row:
    from dataclasses import replace

    return replace(row, out_bytes=sum(t.numel() * t.element_size() for t in tensors_in(result)))


def _sequence_steps(row: Row) -> int:
    """How far one call moves the group's own sequence number (measured on gloo)."""
    if row.op == "monitored_barrier":
        peers = len(row.members) - 1
        return 2 * peers if dist.get_rank() == row.members[0] else 2
    return 1


def _caller() -> tuple[str, str, bool]:
    """(public torch function, file:line outside torch, whether an object collective is on the stack)."""
    frame = sys._getframe(3)
    via, control = "", False
    while frame is not None:
        name, filename = frame.f_code.co_name, frame.f_code.co_filename
        if filename.startswith(_TORCH_DIRECTORY):
            control = control or name in _OBJECT_FUNCTIONS
            if name not in _PLUMBING:
                via = name
        elif not filename.startswith(_OWN_DIRECTORIES):
            return via, f"{os.path.basename(filename)}:{frame.f_lineno}", control
        if frame.f_back is None:
            break
        frame = frame.f_back
    return via, "", control
