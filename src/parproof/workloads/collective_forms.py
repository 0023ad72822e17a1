"""Cases of the forms that are not one call on buffers: functional, with gradients, and messages. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

GRADIENT_SLOT = 30  # slots of the gradients that come in from behind
FORM_GROUPS: dict[str, tuple[int, tuple[int, ...]]] = {
    "world": (3, (0, 1, 2)),
    "without_rank_0": (4, (1, 2, 3)),
}
"""kind → (world size, the group): three ranks both times, so that one case table does."""


@dataclass(frozen=True)
class Form:
    """One functional call: the operation, its reduction, and along which dim."""

    op: str
    reduce_op: str | None = None
    dim: int = 0

    @property
    def capability(self) -> str:
        """How a subject's `lacks` would name it."""
        return f"functional_collectives.{self.op}.{self.reduce_op or 'move'}"

    def takes(self, dtype: str) -> bool:
        """A mean of integers is judged with the buffered forms only."""
        return self.reduce_op != "avg" or "float" in dtype


FORMS: dict[str, tuple[Form, ...]] = {
    "all_reduce": (Form("all_reduce", "sum"), Form("all_reduce", "avg")),
    "all_gather": (Form("all_gather"), Form("all_gather", dim=1)),
    "reduce_scatter": tuple(
        Form("reduce_scatter", reduce_op, dim) for reduce_op in ("sum", "avg") for dim in (0, 1)
    ),
    "all_to_all": (Form("all_to_all"),),
    "broadcast": (Form("broadcast"),),
    "permute": (Form("permute"),),
    "all_reduce_coalesced": (Form("all_reduce_coalesced", "sum"),),
    "all_gather_coalesced": (Form("all_gather_coalesced"),),
    "reduce_scatter_coalesced": (Form("reduce_scatter_coalesced", "sum"),),
}
ROOT = 1  # of broadcast, as a place in the group
TARGETS = (2, 0, 1)  # of permute


def dtypes(layout: str) -> tuple[str, ...]:
    """Element types of a layout: two where it is not contiguous, since a layout breaks places, whatever they hold."""
    return ("float64", "bfloat16", "int64", "uint8") if layout == "contiguous" else ("float64", "uint8")


def input_shapes(form: Form, me: int) -> list[tuple[int, int]]:
    """Shapes of what rank `me` of three hands in."""
    if form.op == "all_to_all":
        return [(sum(rows_to(me)), 5)]
    if form.op.startswith("reduce_scatter"):
        shapes = [(6, 4), (3, 2)] if form.dim == 0 else [(4, 6)]
    else:
        shapes = [(3, 4), (2, 5)]
    return shapes if form.op.endswith("coalesced") else shapes[:1]


def form_blocks(form: Form, me: int) -> list[tuple[list[int], list[int]]]:
    """(elements given, elements taken) of each tensor of rank `me` of three.

    all_reduce, broadcast: one block. Everything else: block j belongs to rank j.
    """
    found = []
    for rows, width in input_shapes(form, me):
        whole = rows * width
        given = taken = [whole] * 3
        if form.op.startswith(("all_reduce", "broadcast")):
            given = taken = [whole]
        elif form.op.startswith("reduce_scatter"):
            given = taken = [whole // 3] * 3
        elif form.op == "all_to_all":
            given, taken = [n * width for n in rows_to(me)], [n * width for n in rows_from(me)]
        elif form.op == "permute":
            given = [whole * (TARGETS[me] == j) for j in range(3)]
            taken = [whole * (TARGETS[j] == me) for j in range(3)]
        found.append((given, taken))
    return found


def rows_to(me: int) -> list[int]:
    """Rows that rank `me` of three sends to each in an all_to_all: uneven, and none from rank 1 to rank 0."""
    return [[1, 2, 3], [0, 2, 1], [2, 1, 4]][me]


def rows_from(me: int) -> list[int]:
    """Rows that rank `me` of three gets from each."""
    return [rows_to(j)[me] for j in range(3)]


MESSAGE_KINDS = ("chain", "isend_irecv", "tags", "any_source", "batch", "functional")
# (layout, group): every layout over the world, one in a group without rank 0
VALUE_PLACES = (
    ("contiguous", "world"),
    ("transposed", "world"),
    ("column_view", "world"),
    ("contiguous", "without_rank_0"),
)
GRADIENT_PLACES = (("contiguous", "world"), ("transposed", "world"), ("transposed", "without_rank_0"))
MESSAGE_PLACES = (
    ("contiguous", "without_rank_0"),
    ("contiguous", "world"),
    ("transposed", "world"),
    ("strided", "world"),
    ("column_view", "world"),
    ("zero_dim", "world"),
    ("odd_large", "world"),
)
OBJECT_OPS = ("all_gather_object", "gather_object", "broadcast_objects", "scatter_object", "send_objects")
