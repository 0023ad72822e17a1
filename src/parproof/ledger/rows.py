"""A ledger row: one communication call that a rank was seen to make. No torch here."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "barrier",
    "monitored_barrier",
)
POINT_TO_POINT = ("send", "recv")
# json.dumps would make an encoder for every call.
_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True)
class Row:
    """One call, in the order the rank made it.

    op          normalised name: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce,
                gather, scatter, barrier, monitored_barrier, send, recv
    form        how it was asked: list, single, coalesced, functional …
    in_bytes    bytes of the buffers this rank hands in; out_bytes: of those it gets back. Logical payload,
                not wire: a call that works in place (all_reduce, broadcast, reduce) counts its buffer in both
                columns on every rank, whichever way the bytes go.
    in_parts    bytes handed in for each member of the group, where the call says so (all_to_all, scatter,
                reduce_scatter of a list); out_parts: bytes expected from each member
    shapes      shapes handed in (for a receiver: of the buffer)
    dtype       of the tensors handed in; «float32+int64» when a call mixes them
    peer        global rank of the partner (point-to-point; -1 for any source), or root (rooted collectives)
    control     True for traffic that carries bookkeeping: object collectives, barriers
    via         outermost torch function that led to the call, e.g. all_gather_object, Tensor.backward
    where       file:line of the caller outside torch and parproof
    raised      type of the exception the call ended with; such a call may have sent all, some or nothing
    thread      name of the thread, when it was not the rank's main one
    """

    seq: int
    op: str
    form: str
    group: str
    members: tuple[int, ...]
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    in_bytes: int
    out_bytes: int
    reduce_op: str | None = None
    peer: int | None = None
    tag: int | None = None
    is_async: bool = False
    phase: str = ""
    control: bool = False
    via: str = ""
    where: str = ""
    in_parts: tuple[int, ...] = ()
    out_parts: tuple[int, ...] = ()
    raised: str = ""
    thread: str = ""

    def to_json(self) -> str:
        """One line of JSON."""
        # Every call is written while it waits: asdict would copy each value and takes ten times as long.
        return _encode(vars(self))

    @classmethod
    def from_json(cls, line: str) -> Row:
        """Inverse of to_json."""
        raw: dict[str, Any] = json.loads(line)
        raw["members"] = tuple(raw["members"])
        raw["shapes"] = tuple(tuple(shape) for shape in raw["shapes"])
        for name in ("in_parts", "out_parts"):
            raw[name] = tuple(raw.get(name, ()))
        return cls(**{f.name: raw[f.name] for f in fields(cls) if f.name in raw})

    def describe(self) -> str:
        """The call as a person would write it."""
        what = self.dtype + (
            str(list(self.shapes[0]))
            if len(self.shapes) == 1
            else f" x{len(self.shapes)}" * bool(self.shapes)
        )
        parts = [part for part in (self.reduce_op, what if what != "none" else "") if part]
        if self.peer is not None:
            word = {"send": "to", "recv": "from"}.get(self.op, "root")
            parts.append(f"{word} {self.peer}" if self.peer >= 0 else f"{word} any rank")
        if self.tag:
            parts.append(f"tag {self.tag}")
        return f"{self.op}({', '.join(parts)})" + (f" at {self.where}" if self.where else "")
