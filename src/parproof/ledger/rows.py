"""A ledger row: one communication call that a rank was seen to make. No torch here."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
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


@dataclass(frozen=True)
class Row:
    """One call, in the order the rank made it.

    op          normalised name: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce,
                gather, scatter, barrier, monitored_barrier, send, recv
    form        how it was asked: list, single, coalesced, functional …
    in_bytes    bytes this rank handed in; out_bytes: bytes it gets back (logical payload, not wire)
    shapes      shapes handed in (for a receiver: of the buffer)
    peer        global rank of the partner (point-to-point), or root (rooted collectives)
    control     True for traffic that carries bookkeeping: object collectives, barriers
    via         innermost public torch function that made the call, e.g. all_gather_object
    where       file:line of the caller outside torch and parproof
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

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Row:
        """Inverse of to_json."""
        raw: dict[str, Any] = json.loads(line)
        raw["members"] = tuple(raw["members"])
        raw["shapes"] = tuple(tuple(shape) for shape in raw["shapes"])
        return cls(**{f.name: raw[f.name] for f in fields(cls)})

    def describe(self) -> str:
        """The call as a person would write it."""
        extra = [
            self.dtype + (str(list(self.shapes[0])) if len(self.shapes) == 1 else f" x{len(self.shapes)}")
        ]
        if self.reduce_op:
            extra.insert(0, self.reduce_op)
        if self.peer is not None:
            word = {"send": "to", "recv": "from"}.get(self.op, "root")
            extra.append(f"{word} {self.peer}")
        return f"{self.op}({', '.join(extra)})" + (f" at {self.where}" if self.where else "")
