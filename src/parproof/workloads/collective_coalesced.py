"""Cases of coalesced collectives: several tensors in one call, or several calls as one. No torch here.

Forms    all_reduce_coalesced, all_gather_coalesced   lists of tensors in one call
         together_OP        several calls of OP that may travel as one (torch's coalescing manager)
         mixed_operations   an all_reduce, an all_gather_single and a reduce_scatter_single together
         mixed_reductions   all_reduces of different reductions together
"""

from __future__ import annotations

from dataclasses import dataclass

from parproof.workloads.collective_cases import DTYPES, Case, reduce_ops

FORMS: dict[str, tuple[str, ...]] = {
    "all_reduce_coalesced": ("all_reduce",) * 3,
    "all_gather_coalesced": ("all_gather",) * 3,
    "together_all_reduce": ("all_reduce",) * 3,
    "together_all_gather_single": ("all_gather_single",) * 3,
    "together_reduce_scatter_single": ("reduce_scatter_single",) * 3,
    "mixed_operations": ("all_reduce", "all_gather_single", "reduce_scatter_single"),
    "mixed_reductions": ("all_reduce",) * 3,
}
"""Form → the operation on each tensor."""
MOST = tuple(form for form in FORMS if not form.startswith("mixed"))
_LAYOUTS = (
    ("contiguous", "column_view", "odd_large"),
    ("transposed", "contiguous", "zero_size"),
    ("sliced", "strided", "contiguous"),
    ("contiguous", "zero_dim", "sliced"),  # only where there is no dim to cut or join along
)


@dataclass(frozen=True)
class Coalesced:
    """One coalesced call: a form, and the case of each tensor. Async: started, then waited for."""

    form: str
    parts: tuple[Case, ...]
    is_async: bool

    @property
    def capabilities(self) -> tuple[str, ...]:
        """How a subject's `lacks` would name what it takes."""
        names = tuple(f"{part.capability}" for part in self.parts)
        return (*names, *(f"{name}.async" for name in names)) if self.is_async else names


def batches(form: str, *, thin: int) -> list[Coalesced]:
    """Every dtype of a form with every `thin`-th reduction of it; layouts take turns, and so do blocking and async."""
    ops = FORMS[form]
    layouts = _LAYOUTS if ops[0] == "all_reduce" or form == "all_gather_coalesced" else _LAYOUTS[:3]
    if form.startswith("mixed"):
        layouts = _LAYOUTS[:3]
    found = []
    for number, (dtype, reduce_op) in enumerate(_pairs(ops)[::thin]):
        names = ("sum", "max", "sum") if form == "mixed_reductions" else (reduce_op,) * 3
        parts = tuple(
            Case(op, dtype, layout, None if "gather" in op else name or "sum", form=form, number=k)
            for k, (op, layout, name) in enumerate(
                zip(ops, layouts[number % len(layouts)], names, strict=True)
            )
        )
        # Four layouts would fall in step with two ways to wait; three do not.
        late = number // len(layouts) if len(layouts) == 4 else 0
        found.append(Coalesced(form, parts, (number + late) % 2 == 1))
    return found


def _pairs(ops: tuple[str, ...]) -> list[tuple[str, str | None]]:
    if "gather" in ops[0]:
        return [(dtype, None) for dtype in DTYPES]
    return [(dtype, name) for dtype in DTYPES[:-1] for name in reduce_ops(dtype)]


Place = tuple[str, str]


def places() -> list[Place]:
    """(form, group): every form on three ranks, all but the mixed ones in every other kind of group."""
    groups = ("W2", "W4", "without_rank_0", "interleaved", "disjoint")
    return [(form, "W3") for form in FORMS] + [("most", group) for group in groups]


def batches_of(form: str) -> list[Coalesced]:
    """The calls of a place: all dtypes of what only moves, and every fifth (together: sixth) pair of dtype and reduction."""
    if form == "most":
        return [batch for one in MOST for batch in batches(one, thin=7 if "gather" in one else 39)]
    if form.startswith("mixed"):
        return batches(form, thin=13)
    return batches(form, thin=1 if "gather" in form else 6 if form.startswith("together") else 5)
