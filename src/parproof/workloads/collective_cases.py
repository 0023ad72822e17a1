"""The cases of the collectives experiment: which call, on what, over whom. No torch here.

Legend   p = ranks in the group, me = this rank's place in it; roots are places in the group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

ELEMENT_BYTES = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "bool": 1,
}
DTYPES = tuple(ELEMENT_BYTES)
REDUCING = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_single")
MOVING = (
    "broadcast",
    "all_gather",
    "all_gather_single",
    "all_to_all",
    "all_to_all_single",
    "scatter",
    "gather",
)
OPS = REDUCING + MOVING
ROOTED = ("broadcast", "reduce", "scatter", "gather")
LAYOUTS = (
    "contiguous",
    "transposed",
    "strided",
    "column_view",
    "sliced",
    "zero_size",
    "zero_dim",
    "odd_large",
)
SHAPE = (3, 4)
SHAPES = {"zero_size": (0, 4), "zero_dim": (), "odd_large": (7, 1429)}
LARGE_HALF = {"exact": (2**20 + 3, 2**20 + 3), "full_range": (24_063_329, 104_729)}
"""Name → (elements of a float16 tensor, after how many of them they repeat); no algorithm cuts where they repeat."""
BEFORE_SLOT = 50  # slots from here on code what an output buffer holds before the call


Role = Literal["in", "out", "inout"]


@dataclass(frozen=True)
class Case:
    """One call: everything but the group.

    root    rank of the group, for rooted operations
    splits  for all_to_all: equal, uneven, or zeros (a rank that receives nothing at all)
    form    the coalesced form that the tensor is part of (workloads.collective_coalesced), and
    number  its place in it, which makes its values differ
    """

    op: str
    dtype: str
    layout: str = "contiguous"
    reduce_op: str | None = None
    root: int | None = None
    splits: str | None = None
    form: str = ""
    number: int = 0

    def __str__(self) -> str:
        parts = [self.op, self.reduce_op, self.dtype, self.layout, self.splits]
        root = "" if self.root is None else f" root {self.root}"
        place = f" as number {self.number} of {self.form}" if self.form else ""
        return " ".join(part for part in parts if part) + root + place

    @property
    def capability(self) -> str:
        """How a subject's `lacks` would name it."""
        kind = self.reduce_op or self.splits or "move"
        name = f"coalesced_collectives.{self.form}" if self.form else f"collectives.{self.op}"
        return f"{name}.{kind}.{self.dtype}.{self.layout}"


@dataclass(frozen=True)
class Buffer:
    """A tensor that a rank hands to the call. `slot` makes the values of a rank's buffers differ."""

    name: str
    role: Role
    shape: tuple[int, ...]
    slot: int


def reduce_ops(dtype: str) -> tuple[str, ...]:
    """The reductions that are defined for a dtype."""
    if dtype == "bool":
        return ("sum", "min", "max", "product", "band", "bor", "bxor")
    common = ("sum", "avg", "min", "max", "product")
    return common if "float" in dtype else (*common, "band", "bor", "bxor")


SPLITS = ("uneven", "zeros", "equal")


def rows_between(splits: str, source: int, target: int) -> int:
    """Rows that one rank sends another in an all_to_all."""
    if splits == "equal":
        return 2
    if splits == "uneven":
        return 1 + (source + 2 * target) % 3
    return 0 if target == 0 or source == 1 else 1 + (source + target) % 2


def buffers(case: Case, p: int, me: int) -> list[Buffer]:
    """What rank `me` of a group of p hands to the call."""
    shape = SHAPES.get(case.layout, SHAPE)
    blocks = (p * shape[0], *shape[1:]) if shape else (p,)
    x, out = Buffer("x", "in", shape, 0), Buffer("out", "out", shape, BEFORE_SLOT)
    xs = [Buffer(f"xs[{j}]", "in", shape, j) for j in range(p)]
    outs = [Buffer(f"outs[{j}]", "out", shape, BEFORE_SLOT + j) for j in range(p)]
    if case.op in ("all_reduce", "reduce", "broadcast"):
        return [Buffer("x", "inout", shape, 0)]
    if case.op in ("all_to_all", "all_to_all_single"):
        return _all_to_all_buffers(case, p, me, shape)
    if case.op == "scatter":
        return [*(xs if me == case.root else []), out]
    if case.op == "gather":
        return [x, *(outs if me == case.root else [])]
    return {
        "all_gather": [x, *outs],
        "all_gather_single": [x, Buffer("out", "out", blocks, BEFORE_SLOT)],
        "reduce_scatter": [*xs, out],
        "reduce_scatter_single": [Buffer("x", "in", blocks, 0), out],
    }[case.op]


def _all_to_all_buffers(case: Case, p: int, me: int, shape: tuple[int, ...]) -> list[Buffer]:
    sent = [rows_between(case.splits or "equal", me, j) for j in range(p)]
    received = [rows_between(case.splits or "equal", j, me) for j in range(p)]
    if case.layout in SHAPES:  # these shapes have rows of their own
        sent = received = [shape[0] if shape else 1] * p
    tail = shape[1:] if shape else ()
    if case.op == "all_to_all_single":
        return [
            Buffer("x", "in", (sum(sent), *tail), 0),
            Buffer("out", "out", (sum(received), *tail), BEFORE_SLOT),
        ]
    head = [() if not shape else (n,) for n in sent], [() if not shape else (n,) for n in received]
    return [Buffer(f"xs[{j}]", "in", (*head[0][j], *tail), j) for j in range(p)] + [
        Buffer(f"outs[{j}]", "out", (*head[1][j], *tail), BEFORE_SLOT + j) for j in range(p)
    ]


def splits_of(case: Case, p: int, me: int) -> tuple[list[int] | None, list[int] | None]:
    """(out_splits, in_splits) of all_to_all_single; None, None for equal parts."""
    if case.splits in (None, "equal") or case.layout in SHAPES:
        return None, None
    return (
        [rows_between(str(case.splits), j, me) for j in range(p)],
        [rows_between(str(case.splits), me, j) for j in range(p)],
    )


def judged(case: Case, buffer: Buffer, me: int) -> bool:
    """True for a buffer whose new value is the point of the call; the others have to stay as they are."""
    if me < 0 or buffer.role == "in":
        return False
    if case.op == "reduce":
        return me == case.root
    return not (case.op == "broadcast" and me == case.root)


def blocks(case: Case, p: int, me: int) -> tuple[list[int], list[int]]:
    """(elements given, elements taken) per rank: the blocks that the operation deals in.

    all_reduce, reduce, broadcast: one block. Everything else: block j belongs to rank j.
    """
    sizes = {b.name: math.prod(b.shape) for b in buffers(case, p, me)}
    if case.op in ("all_reduce", "reduce", "broadcast"):
        return [sizes["x"]], [sizes["x"]]
    if case.op == "all_to_all":
        return [sizes[f"xs[{j}]"] for j in range(p)], [sizes[f"outs[{j}]"] for j in range(p)]
    if case.op == "all_to_all_single":
        taken, given = splits_of(case, p, me)
        if given is None or taken is None:
            return [sizes["x"] // p] * p, [sizes["out"] // p] * p
        width = SHAPE[1]
        return [rows * width for rows in given], [rows * width for rows in taken]
    block = math.prod(SHAPES.get(case.layout, SHAPE))
    return [block] * p, [block] * p


GROUPS: dict[str, tuple[int, tuple[tuple[int, ...], ...]]] = {
    "alone": (2, ((1,),)),
    "without_rank_0": (3, ((1, 2),)),
    "prefix": (4, ((0, 1, 2),)),
    "interleaved": (4, ((0, 2),)),
    "three_without_rank_0": (4, ((1, 2, 3),)),
    "disjoint": (4, ((0, 3), (1, 2))),
}
"""kind → (world size, groups of global ranks that work at once)."""


def cases(op: str, layout: str = "contiguous", *, kind: str = "numbers", p: int, thin: int = 1) -> list[Case]:
    """Every dtype and reduction of an operation, or every `thin`-th in an order that turns with op and layout, and
    each reduction at least once.

    kind    numbers or bool, for reductions; anything else moves all dtypes alike
    thin    moving operations have fewer cases, and are thinned half as much
    Roots and splits take turns, so that each occurs with several dtypes.
    """
    pairs: list[tuple[str, str | None]] = [(dtype, None) for dtype in DTYPES]
    if op in REDUCING:
        dtypes = ("bool",) if kind == "bool" else DTYPES[:-1]
        pairs = [(dtype, reduce_op) for dtype in dtypes for reduce_op in reduce_ops(dtype)]
    else:
        thin = (thin + 1) // 2
    turn = OPS.index(op) + LAYOUTS.index(layout) + p
    kept = _every(thin, pairs, turn)
    found = []
    for number, (dtype, reduce_op) in enumerate(pairs):
        if number not in kept:
            continue
        root = (number // thin + turn) % p if op in ROOTED else None
        splits = SPLITS[(number // thin + turn) % 3] if op.startswith("all_to_all") else None
        if splits and layout in SHAPES:
            splits = "equal"
        found.append(Case(op, dtype, layout, reduce_op, root, splits))
    return found


def _every(thin: int, pairs: list[tuple[str, str | None]], turn: int) -> set[int]:
    """Places in the list: every `thin`-th, and one of each reduction that would have none."""
    kept = {number for number in range(len(pairs)) if (number + turn) % thin == 0}
    seen = {pairs[number][1] for number in kept}
    for reduce_op in {reduce_op for _, reduce_op in pairs} - seen:
        own = [number for number, (_, other) in enumerate(pairs) if other == reduce_op]
        kept.add(own[turn % len(own)])
    return kept


Place = tuple[str, str, str, int]  # (op, layout, kind, ranks of the world)


def places(layouts: tuple[str, ...] = LAYOUTS, *, bools: bool = True) -> list[Place]:
    """Where the values of an operation are judged: plain tensors on 3, 2 and 4 ranks, other layouts on few.

    Three ranks first: they show what two hide (a swapped neighbour, a halved mean). What a layout breaks, it
    breaks on two ranks; large odd sizes, which algorithms cut in parts, stay on three.
    """
    found: list[Place] = []
    for op in OPS:
        kinds = ("numbers", "bool") if op in REDUCING and bools else ("numbers",)
        for layout in layouts:
            if layout == "zero_dim" and op == "all_to_all_single":
                continue  # it divides rows, and a 0-dim tensor has none
            worlds = {"contiguous": (3, 2, 4), "odd_large": (3,)}.get(layout, (2,))
            found += [
                (op, layout, kind if op in REDUCING else "any", p)
                for kind in kinds
                for p in worlds
                if kind != "bool" or (layout, p) in (("contiguous", 3), ("column_view", 2))
            ]
    return found


def name(place: Place) -> str:
    """A place in a test id."""
    return "-".join((*place[:3], f"W{place[3]}"))


def value_cases(op: str, layout: str, kind: str, p: int) -> list[Case]:
    """All cases of plain tensors on three ranks, and of bool; a part of them elsewhere."""
    whole = kind == "bool" or (layout == "contiguous" and p == 3)
    return cases(op, layout, kind=kind, p=p, thin=1 if whole else 6)


def group_cases(p: int, thin: int = 8) -> list[Case]:
    """Every operation on contiguous tensors, for a group of p ranks. Bool reductions are judged over the world."""
    return [case for op in OPS for case in cases(op, p=p, thin=thin)]
