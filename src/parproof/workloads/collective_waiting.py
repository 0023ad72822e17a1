"""Cases of asynchronous calls in which somebody has to wait for the last rank. No torch here."""

from __future__ import annotations

from parproof.workloads.collective_cases import OPS, REDUCING, Case


def waiting_cases(op: str, p: int) -> list[Case]:
    """Cases in which somebody has to wait for the last rank: it gives what is moved, the first takes.

    `all` has one case of each operation and reduction, on one dtype and layout or the other in turn.
    """
    if op == "all":
        each = [(turn, waiting_cases(one, p)) for turn, one in enumerate(OPS)]
        return [case for turn, cases in each for k, case in enumerate(cases) if (k + k // 2 + turn) % 2]
    root = {"broadcast": p - 1, "scatter": p - 1, "reduce": 0, "gather": 0}.get(op)
    reduce_ops = ("sum", "max") if op in REDUCING else (None,)
    splits = "equal" if op.startswith("all_to_all") else None
    return [
        Case(op, dtype, layout, reduce_op, root, splits)
        for reduce_op in reduce_ops
        for dtype, layout in (("float32", "contiguous"), ("int64", "sliced"))
    ]


def waiting_places() -> list[tuple[str, str]]:
    """(operation, group) of the asynchronous calls: one by one on three ranks, all of them in every kind of group."""
    groups = ("W2", "W4", "without_rank_0", "interleaved", "disjoint")
    return [(op, "W3") for op in OPS] + [("all", group) for group in groups]
