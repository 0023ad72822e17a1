"""Cases of the forms that are not one call on buffers: functional, with gradients, messages, objects. No torch here.

Legend   p = ranks in the group, me = this rank's place in it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from parproof.workloads.collective_cases import DTYPES

Groups = tuple[tuple[int, ...], ...]
GRADIENT_SLOT = 30  # slots of the gradients that come in from behind
FORM_GROUPS: dict[str, tuple[int, Groups]] = {
    "W2": (2, ((0, 1),)),
    "W3": (3, ((0, 1, 2),)),
    "W4": (4, ((0, 1, 2, 3),)),
    "prefix": (3, ((0, 1),)),
    "without_rank_0": (4, ((1, 2, 3),)),
    "interleaved": (4, ((0, 2),)),
    "disjoint": (4, ((0, 3), (1, 2))),
}
"""kind → (world size, groups of global ranks that work at once)."""
OTHER_GROUPS = tuple(name for name in FORM_GROUPS if name != "W3")
LAYOUT_SETS: dict[str, tuple[str, ...]] = {
    "dense": ("contiguous", "odd_large", "sliced", "zero_dim"),
    "views": ("transposed", "strided", "column_view"),
    "zero_size": ("zero_size",),
    "sliced": ("sliced",),
}
"""What is judged in one run, by the word for it in a test id."""


@dataclass(frozen=True)
class Form:
    """One functional call: the operation, its reduction, and along which dim."""

    op: str
    reduce_op: str | None = None
    dim: int = 0


@dataclass(frozen=True)
class FormCase:
    """A functional call on tensors of one dtype and layout, with its gradient or without, by one of two mechanisms."""

    form: Form
    dtype: str
    layout: str
    gradient: bool = False
    mechanism: str = "functional_collectives"

    def __str__(self) -> str:
        form, older = self.form, "autograd " if self.mechanism == "autograd_collectives" else ""
        return f"{older}{form.op} {form.reduce_op or ''} dim {form.dim} {self.dtype} {self.layout}"

    @property
    def capabilities(self) -> tuple[str, ...]:
        """How a subject's `lacks` would name what it takes."""
        kind = self.form.reduce_op or "move"
        value = f"{self.mechanism}.{self.form.op}.{kind}.{self.dtype}.{self.layout}"
        return (value, f"{value}.gradient") if self.gradient else (value,)


REDUCTIONS = ("sum", "avg", "min", "max", "product")
FORMS: dict[str, tuple[Form, ...]] = {
    "all_reduce": tuple(Form("all_reduce", reduce_op) for reduce_op in REDUCTIONS),
    "all_gather": (Form("all_gather"), Form("all_gather", dim=1)),
    "reduce_scatter": tuple(
        Form("reduce_scatter", reduce_op, dim) for reduce_op in REDUCTIONS for dim in (0, 1)
    ),
    "all_to_all": (Form("all_to_all"),),
    "broadcast": (Form("broadcast"),),
    "permute": (Form("permute"),),
    "all_reduce_coalesced": tuple(Form("all_reduce_coalesced", reduce_op) for reduce_op in REDUCTIONS),
    "all_gather_coalesced": (Form("all_gather_coalesced"),),
    "reduce_scatter_coalesced": tuple(
        Form("reduce_scatter_coalesced", reduce_op) for reduce_op in REDUCTIONS
    ),
}
SINGLE = ("all_reduce", "reduce_scatter")
"""Reductions of single tensors: their gradients are judged with every dtype and reduction, and in every group."""
SCALAR = ("all_reduce", "broadcast", "all_reduce_coalesced")
"""Forms that take tensors without a dim: there is nothing to cut, and nothing to join along."""
REST = ("broadcast", "permute", "reduce_scatter_coalesced")
"""Forms whose gradients a subject may well have wrong: each in a run of its own, so that it hides nothing else."""
_OTHERS = REDUCTIONS[1:]
AUTOGRAD: dict[str, tuple[Form, ...]] = {
    "sums": tuple(
        Form(*of)
        for of in (("all_reduce", "sum"), ("all_reduce", "avg"), ("reduce_scatter", "sum"), ("reduce", "sum"))
    ),
    "extremes_and_products": tuple(Form("all_reduce", name) for name in _OTHERS if name != "avg"),
    "scattered_others": tuple(Form("reduce_scatter", name) for name in _OTHERS),
    "reduced_others": tuple(Form("reduce", name) for name in _OTHERS),
    "all_gather": (Form("all_gather"),),
    "all_gather_single": (Form("all_gather_single"),),
    "all_to_all": (Form("all_to_all"),),
    "all_to_all_list": (Form("all_to_all_list"),),
    "broadcast": (Form("broadcast"),),
    "gather": (Form("gather"),),
    "scatter": (Form("scatter"),),
}
"""What is judged in one run of the mechanism autograd_collectives, with gradients."""
ALONE = ("all_to_all_list", "gather", "scatter")
"""Forms of it that a subject may well refuse in some group, value and gradient: what fails with them is theirs alone."""
VIEWS_ALONE = ("gather", "scatter")
"""Forms of it that a subject may well have wrong on views: their views are in a run of their own."""
OPS_OF: dict[str, tuple[str, ...]] = {op: (op,) for op in FORMS} | {"most": tuple(FORMS)}
ROOT = 1  # of broadcast and of objects, as a place in the group
_TARGETS = {2: (1, 0), 3: (2, 0, 1), 4: (2, 0, 3, 1)}
_ROWS = ((1, 2, 3, 2), (0, 2, 1, 3), (2, 1, 4, 0), (3, 0, 2, 1))
FLOATS = ("float64", "float32", "bfloat16", "float16")


def targets(p: int) -> tuple[int, ...]:
    """Where each rank's tensor goes in a permute: to itself never, and back only where there are two ranks."""
    return _TARGETS[p]


def cases(ops: tuple[str, ...], layouts: tuple[str, ...], *, gradient: bool) -> list[FormCase]:
    """Each form with each layout it is defined for, on the dtypes of the layout.

    Sums and moves take all dtypes of the layout, and so do gradients of single plain tensors; otherwise the other
    reductions take turns.
    """
    found = []
    for op in ops:
        for layout in layouts:
            if layout == "zero_dim" and op not in SCALAR:
                continue
            every = gradient and layout == "contiguous" and op in SINGLE
            for turn, dtype in enumerate(dtypes(layout, gradient=gradient), layouts.index(layout)):
                kept = [form for form in FORMS[op] if every or _is_due(form, dtype, turn)]
                found += [FormCase(form, dtype, layout, gradient) for form in kept]
    return found


def _is_due(form: Form, dtype: str, turn: int) -> bool:
    if form.reduce_op is None or (form.reduce_op == "sum" and dtype != "bool"):
        return True
    if dtype == "bool" or (form.reduce_op == "avg" and "float" not in dtype):
        return False  # these are judged with the buffered forms
    return REDUCTIONS.index(form.reduce_op) - 1 == (turn + 2 * form.dim) % 4


def group_cases(word: str) -> list[FormCase]:
    """For every kind of group, on views, with gradients: all forms, but those of REST with their values alone.

    So are extremes and products along dim 1 or of several tensors: their gradients are judged on three ranks.
    Where a subject has the value of a form and no gradient, its value is judged (checks.collective_runs).
    """
    turns = itertools.cycle((("float64", "column_view"), ("bfloat16", "sliced")))
    if word in REST:
        next(turns)  # older releases take no strided tensors
    each = [form for op in OPS_OF[word] for form in FORMS[op]]
    return [
        FormCase(form, *turn, gradient=word != "most" or _is_due_in_groups(form))
        for form, turn in zip(each, turns, strict=False)
        if word != "most" or form.op != "permute"
    ]


def _is_due_in_groups(form: Form) -> bool:
    linear = form.reduce_op in (None, "sum", "avg")
    return form.op not in REST and (linear or (form.op in SINGLE and form.dim == 0))


def autograd_cases(word: str, layouts: str = "autograd") -> list[FormCase]:
    """The same with the mechanism autograd_collectives, all with gradient; `values` without, of all but ALONE."""
    plain, view, empty = ("float64", "contiguous"), ("bfloat16", "column_view"), ("float64", "zero_size")
    places = [plain, empty] if word in VIEWS_ALONE else [plain, view, empty]
    if layouts == "autograd_views":
        places = [view]
    each = list(AUTOGRAD.get(word, ()))
    if word == "values":
        places = [plain, view]
        each = [form for one in AUTOGRAD if one not in ALONE for form in AUTOGRAD[one]]
    return [
        FormCase(form, dtype, layout, word != "values", "autograd_collectives")
        for form in each
        for dtype, layout in places
    ]


def dtypes(layout: str, *, gradient: bool) -> tuple[str, ...]:
    """Element types of a layout: one where it is not contiguous, since a layout breaks places, whatever they hold."""
    few = {"odd_large": ("float16",), "contiguous": FLOATS if gradient else DTYPES}
    return few.get(layout, ("float64",))


def input_shapes(case: FormCase, p: int, me: int) -> list[tuple[int, ...]]:
    """Shapes of what rank `me` hands in. Coalesced forms have a second, plain tensor."""
    form, layout = case.form, case.layout
    if form.op == "all_to_all":
        return [(sum(rows_to(p, me)), {"zero_size": 0, "odd_large": 1429}.get(layout, 5))]
    cut = p if form.op.startswith("reduce_scatter") or form.op in ("scatter", "all_to_all_list") else 1
    shape: tuple[int, ...] = (2 * p if cut > 1 else 3, 4)
    if layout in ("zero_size", "odd_large", "zero_dim"):
        shape = {"zero_size": (0, 4), "odd_large": (7 * cut, 1429), "zero_dim": ()}[layout]
    plain = (p if cut > 1 else 2, 5)
    shape = shape if form.dim == 0 else shape[::-1]
    return [shape, plain] if form.op.endswith("coalesced") else [shape]


def form_blocks(case: FormCase, p: int, me: int) -> list[tuple[list[int], list[int]]]:
    """(elements given, elements taken) of each tensor of rank `me`.

    all_reduce, reduce, broadcast: one block. Everything else: block j belongs to rank j.
    """
    found, op = [], case.form.op
    for shape in input_shapes(case, p, me):
        whole = math.prod(shape)
        given = taken = [whole] * p
        if op.startswith(("all_reduce", "broadcast")) or op == "reduce":
            given = taken = [whole]
        elif op.startswith("reduce_scatter") or op in ("scatter", "all_to_all_list"):
            given = taken = [whole // p] * p
        elif op == "all_to_all":
            width = shape[1]
            given, taken = [n * width for n in rows_to(p, me)], [n * width for n in rows_from(p, me)]
        elif op == "permute":
            given = [whole * (targets(p)[me] == j) for j in range(p)]
            taken = [whole * (targets(p)[j] == me) for j in range(p)]
        found.append((given, taken))
    return found


def takes(form: Form, me: int) -> bool:
    """Whether rank `me` has a result. Where it has none, what is returned means nothing, nor does its gradient."""
    return form.op not in ("gather", "reduce") or me == ROOT


def rows_to(p: int, me: int) -> list[int]:
    """Rows that rank `me` sends to each in an all_to_all: uneven, and none from rank 1 to rank 0."""
    return list(_ROWS[me][:p])


def rows_from(p: int, me: int) -> list[int]:
    """Rows that rank `me` gets from each."""
    return [row[me] for row in _ROWS[:p]]


Place = tuple[str, str, str]
"""(word for the operations or patterns, word for the layouts, group)."""


def named(place: Place) -> dict[str, str]:
    """A place in a record."""
    return dict(zip(("what", "layouts", "group"), place, strict=True))


def value_places() -> list[Place]:
    """Every form and layout, on three ranks."""
    return [(op, layouts, "W3") for op in FORMS for layouts in ("dense", "views", "zero_size")]


def gradient_places() -> list[Place]:
    """As value_places, and all forms, with their values, in every other kind of group."""
    found = value_places() + [("most", "group_cases", group) for group in OTHER_GROUPS]
    found += [(word, "group_cases", "without_rank_0") for word in REST]
    found += [(word, "group_cases", "W4") for word in ("broadcast", "permute")]
    found += [(word, "autograd_views", "W3") for word in VIEWS_ALONE]
    return found + [
        (word, "autograd", group) for group in ("W3", "without_rank_0") for word in ("values", *AUTOGRAD)
    ]


MESSAGE_KINDS = ("chain", "isend_irecv", "tags", "any_source", "batch", "functional")
KINDS_OF: dict[str, tuple[str, ...]] = {kind: (kind,) for kind in MESSAGE_KINDS} | {
    "most": tuple(kind for kind in MESSAGE_KINDS if kind != "functional")
}


def message_dtypes(layout: str) -> tuple[str, ...]:
    """All where tensors are contiguous; elsewhere the widest and the narrowest."""
    return DTYPES if layout == "contiguous" else ("float64", "bool")


def message_places() -> list[Place]:
    """Every pattern and layout on three ranks; all patterns in every other kind of group."""
    found = [(kind, layouts, "W3") for kind in MESSAGE_KINDS for layouts in ("dense", "views", "zero_size")]
    found += [("most", "sliced", group) for group in OTHER_GROUPS]
    return found + [("functional", "sliced", group) for group in ("W2", "W4", "without_rank_0")]


OBJECT_OPS = ("all_gather_object", "gather_object", "broadcast_objects", "scatter_object", "send_objects")


def object_receiver(p: int) -> int:
    """Whom the root of the objects sends some to."""
    return (ROOT + 1) % p
