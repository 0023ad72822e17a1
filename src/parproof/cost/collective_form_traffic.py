"""What one rank sends in the forms that are not one call on buffers: functional, with gradients, messages, objects.

Legend   as in collective_traffic. A form is put together from operations on buffers; `algorithms` says how each of
         these is carried, and beside them
             coalesced  one_call (a call for all tensors) or one_by_one
             OP.gradient  how the gradient of OP is carried, where that is not how the operation behind it is
             nonlinear  as_sums: gradients of min, max and product take nothing besides (so they cannot be right)
             objects    single_call (torch's own object operation: its control traffic) or lengths_first (a
                        collective of 8-byte lengths, then one of the pickles, of exactly their size)
Source   derived in docs/costs.md. The gradient of a form is the operation that sums up what everybody made of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from parproof.cost.collective_traffic import Place, collective_traffic
from parproof.cost.traffic import Traffic
from parproof.errors import UsageError

Blocks = tuple[Sequence[int], Sequence[int]]
"""(elements given, elements taken) of one tensor, as collective_traffic takes them."""

LENGTH_BYTES = 8
BEHIND = {
    "all_reduce": "all_reduce",
    "all_gather": "reduce_scatter",
    "reduce_scatter": "all_gather",
    "all_gather_single": "reduce_scatter",
    "all_to_all": "all_to_all",
    "all_to_all_list": "all_to_all_list",
    "broadcast": "reduce",
    "reduce": "broadcast",
    "gather": "scatter",
    "scatter": "gather",
}
"""Operation → the one that carries its gradient, with given and taken swapped."""


def operations(
    op: str, algorithms: Mapping[str, str], *, gradient: bool, reduce_op: str | None = None
) -> list[str]:
    """The operations on buffers that a functional call takes: its own and, if asked for, those of its gradient.

    The gradient's is named OP.gradient where the subject states a way for it.
    """
    single = "all_to_all" if op == "permute" else op.removesuffix("_coalesced")
    if not gradient:
        return [single]
    own = f"{single}.gradient"
    beside = () if algorithms.get("nonlinear") == "as_sums" else _BESIDE.get((single, reduce_op), ())
    return [single, own if own in algorithms else BEHIND[single], *beside]


_BESIDE: dict[tuple[str, str | None], tuple[str, ...]] = {
    ("all_reduce", "min"): ("all_reduce",),
    ("all_reduce", "max"): ("all_reduce",),
    ("all_reduce", "product"): ("all_gather",),
    ("reduce_scatter", "min"): ("all_gather", "all_reduce"),
    ("reduce_scatter", "max"): ("all_gather", "all_reduce"),
    ("reduce_scatter", "product"): ("all_gather",),
    ("reduce", "min"): ("broadcast", "all_reduce"),
    ("reduce", "max"): ("broadcast", "all_reduce"),
    ("reduce", "product"): ("all_gather",),
}
"""What the gradient of a reduction that is not linear takes besides, with the reduction's own blocks or whole tensors."""


def functional_traffic(
    op: str,
    algorithms: Mapping[str, str],
    place: Place,
    tensors: Sequence[Blocks],
    *,
    element_bytes: int,
    gradient: bool,
    phase: str,
    reduce_op: str | None = None,
) -> list[Traffic]:
    """A functional call in phase/forward and, if asked for, its gradient in phase/backward."""
    ahead, *behind = operations(op, algorithms, gradient=gradient, reduce_op=reduce_op)
    lines = _calls(ahead, algorithms, place, tensors, element_bytes, f"{phase}/forward")
    for number, one in enumerate(behind):
        blocks = [_swapped(one, number, reduce_op, *of, place.p) for of in tensors]
        lines += _calls(one, algorithms, place, blocks, element_bytes, f"{phase}/backward")
    return lines


def _swapped(
    op: str, number: int, reduce_op: str | None, given: Sequence[int], taken: Sequence[int], p: int
) -> Blocks:
    """The first way back takes what was given; what is sent besides is whole, but for the results of a scatter."""
    if number == 0 or (op == "all_gather" and reduce_op != "product"):
        return taken, given
    whole = sum(given)
    return ([whole], [whole]) if op in ("all_reduce", "broadcast") else ([whole] * p, [whole] * p)


def _calls(
    op: str,
    algorithms: Mapping[str, str],
    place: Place,
    tensors: Sequence[Blocks],
    element_bytes: int,
    phase: str,
) -> list[Traffic]:
    lines = [
        line for blocks in tensors for line in _one(op, algorithms, place, *blocks, element_bytes, phase)
    ]
    return in_one_call(lines, algorithms, op)


def in_one_call(lines: list[Traffic], algorithms: Mapping[str, str], op: str) -> list[Traffic]:
    """The lines of several tensors, one each, as those of one call, if that is how the subject coalesces them."""
    if algorithms[op] == "single_call" and algorithms.get("coalesced") == "one_call":
        # One call hands in all tensors: the first line counts, the others bring their bytes.
        return [replace(line, calls=int(k == 0)) for k, line in enumerate(lines)]
    return lines


def _one(
    op: str,
    algorithms: Mapping[str, str],
    place: Place,
    given: Sequence[int],
    taken: Sequence[int],
    element_bytes: int,
    phase: str = "",
) -> list[Traffic]:
    name = op.removesuffix(".gradient")
    return collective_traffic(
        (BEHIND[name] if name != op else op).removesuffix("_list"),
        algorithms[op],
        place,
        given,
        taken,
        element_bytes=element_bytes,
        agreement=algorithms.get("agreement"),
        phase=phase,
    )


def message_traffic(p: int, sends: int, receives: int, message_bytes: int, phase: str) -> list[Traffic]:
    """One call a message, whoever starts it and however: there is nothing to choose."""
    return [
        Traffic("send", sends, sends * message_bytes, 0, p, phase),
        Traffic("recv", receives, 0, receives * message_bytes, p, phase),
    ]


def object_traffic(
    op: str, algorithms: Mapping[str, str], place: Place, sizes: Sequence[int], receiver: int
) -> list[Traffic]:
    """An object collective.

    sizes     bytes of the pickles: one for each rank, or (broadcast_objects, send_objects) of each object that the
              root hands out; with lengths_first that is one pickle of them all
    receiver  the place in the group that send_objects goes to
    Errors    UsageError for a way that is not known here.
    """
    way = algorithms.get("objects")
    if way == "single_call":
        return _objects_of_torch(op, place, sizes, receiver)
    if way != "lengths_first":
        raise UsageError(
            f"objects by {way!r}",
            expected="single_call or lengths_first",
            where="algorithms of the subject's object_collectives",
            next_step="or say that the subject lacks «object_collectives.*.traffic»",
        )
    if op == "send_objects":
        return _to_one(place, [LENGTH_BYTES, sum(sizes)], receiver)
    inner = {"broadcast_objects": "broadcast"}.get(op, op.removesuffix("_object"))
    lengths = [1] * len(sizes)
    return _one(inner, algorithms, place, lengths, lengths, LENGTH_BYTES) + _one(
        inner, algorithms, place, sizes, sizes, 1
    )


def _to_one(place: Place, messages: Sequence[int], receiver: int) -> list[Traffic]:
    if place.me == place.root:
        return [Traffic("send", len(messages), sum(messages), 0, place.p)]
    return [Traffic("recv", len(messages), 0, sum(messages), place.p)] if place.me == receiver else []


def _objects_of_torch(op: str, place: Place, sizes: Sequence[int], receiver: int) -> list[Traffic]:
    """Sizes travel first here too, and every pickle of a gather or scatter is padded to the longest."""
    p, at_root, longest, total = place.p, place.me == place.root, max(sizes), sum(sizes)
    if op == "send_objects":
        return _to_one(place, [LENGTH_BYTES * len(sizes), total], receiver)
    if op == "broadcast_objects":
        both = LENGTH_BYTES * len(sizes) + total
        return [Traffic("broadcast", 2, both, both, p)]
    if op == "scatter_object":
        block = longest + LENGTH_BYTES
        return [
            Traffic("broadcast", 1, LENGTH_BYTES, LENGTH_BYTES, p),
            Traffic("scatter", 2, p * block if at_root else 0, block, p),
        ]
    lengths = Traffic("all_gather", 1, LENGTH_BYTES, p * LENGTH_BYTES, p)
    if op == "gather_object":
        return [lengths, Traffic("gather", 1, longest, p * longest if at_root else 0, p)]
    return [lengths, Traffic("all_gather", 1, longest, p * longest, p)]
