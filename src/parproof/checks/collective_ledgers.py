"""Ledgers of the collectives experiment, beyond the buffered calls: every form sends what is predicted, nothing else."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from parproof.checks.collectives import algorithms, predicted, stated
from parproof.checks.ledger import assert_ledger
from parproof.cost.collective_form_traffic import (
    functional_traffic,
    message_traffic,
    object_traffic,
    operations,
)
from parproof.cost.collective_traffic import Place, collective_traffic
from parproof.cost.traffic import Traffic
from parproof.ranks.run import Run
from parproof.workloads.collective_cases import ELEMENT_BYTES, Case
from parproof.workloads.collective_forms import ROOT, Form, form_blocks

if TYPE_CHECKING:
    from parproof.subjects.protocol import SubjectRef


def assert_asynchronous(
    run: Run, subject: SubjectRef, cases: Sequence[Case], *, in_turn: bool
) -> list[Traffic]:
    """Started and waited for, each case sends what the blocking call sends; in_turn: in a phase of its own."""
    __tracebackhide__ = True
    ways, everyone = algorithms(subject, cases), range(run.world_size)
    numbered = list(enumerate(cases))
    return _judged(
        run,
        everyone,
        lambda place: [
            line
            for number, case in numbered
            for line in predicted(
                case, replace(place, root=case.root or 0), ways, f"case{number}" if in_turn else ""
            )
        ],
    )


def assert_barrier(run: Run, subject: SubjectRef) -> list[Traffic]:
    """One call of torch's barrier, or the notes of its algorithm."""
    __tracebackhide__ = True
    ways = stated(subject, "collectives", ["collectives.barrier"], ["barrier"])
    none: list[int] = []
    return _judged(
        run,
        range(run.world_size),
        lambda place: collective_traffic(
            "barrier", ways["barrier"], place, none, none, element_bytes=1, agreement=ways.get("agreement")
        ),
    )


def assert_functional(
    run: Run,
    subject: SubjectRef,
    forms: Sequence[tuple[Form, str, str]],
    members: Sequence[int],
    *,
    gradient: bool,
) -> list[Traffic]:
    """Each form in its phase, forward and backward apart."""
    __tracebackhide__ = True
    suffix = ".gradient" if gradient else ""
    ways = stated(
        subject,
        "functional_collectives",
        [form.capability + suffix for form, _, _ in forms],
        [op for form, _, _ in forms for op in operations(form.op, gradient=gradient)],
    )

    def lines(place: Place) -> list[Traffic]:
        return [
            line
            for number, (form, dtype, _) in enumerate(forms)
            for line in functional_traffic(
                form.op,
                ways,
                replace(place, root=ROOT),
                form_blocks(form, place.me),
                element_bytes=ELEMENT_BYTES[dtype],
                gradient=gradient,
                phase=f"case{number}",
            )
        ]

    return _judged(run, members, lines)


def assert_messages(
    run: Run,
    subject: SubjectRef,
    kind: str,
    dtypes: Sequence[str],
    shape: Sequence[int],
    members: Sequence[int],
) -> list[Traffic]:
    """As many sends as others await from this rank, as many receives as it awaits; nothing in a second copy."""
    from parproof.oracles.collective_messages import expected_messages

    __tracebackhide__ = True
    subject.require(f"point_to_point.{kind}.traffic")
    count, p = math.prod(shape), len(members)
    awaited = [expected_messages(kind, p, me) for me in range(p)]

    def lines(place: Place) -> list[Traffic]:
        sends = sum(sender == place.me for of_rank in awaited for sender, _ in of_rank)
        receives = len(awaited[place.me])
        return [
            line
            for dtype in dtypes
            for line in message_traffic(p, sends, receives, count * ELEMENT_BYTES[dtype], dtype)
        ]

    return _judged(run, members, lines)


def assert_objects(run: Run, subject: SubjectRef, op: str, members: Sequence[int]) -> list[Traffic]:
    """The pickles and their sizes; what torch itself sends for an object is tagged as control, all of it."""
    __tracebackhide__ = True
    ways = stated(subject, "object_collectives", [f"object_collectives.{op}"], ["objects"])
    whole = ways["objects"] == "single_call"
    sizes = _pickled(op, members, one_by_one=whole)
    last = len(members) - 1
    lines = _judged(run, members, lambda place: object_traffic(op, ways, replace(place, root=1), sizes, last))
    for rank, rows in enumerate(run.ledgers if whole else ()):
        untagged = [row.describe() for row in rows if not row.control]
        if untagged:
            raise AssertionError(f"{run.where(rank)}: {op}: not tagged as control: {untagged[0]}")
    return lines


def _pickled(op: str, members: Sequence[int], *, one_by_one: bool) -> list[int]:
    """Bytes of every pickle that the operation has to move; the root is the group's second rank."""
    from parproof.oracles.collective_messages import handed_in

    values = handed_in(op, members)
    together = op in ("broadcast_objects", "send_objects") and not one_by_one
    return [len(pickle.dumps(value)) for value in ([values] if together else values)]


def _judged(run: Run, members: Sequence[int], lines: Callable[[Place], list[Traffic]]) -> list[Traffic]:
    """Every rank's ledger against its prediction, control traffic too; who is not in the group sends nothing.

    Returns the prediction for the last rank.
    """
    __tracebackhide__ = True
    found: list[Traffic] = []
    for rank, rows in enumerate(run.ledgers):
        inside = rank in members
        place = Place(len(members), list(members).index(rank)) if inside else None
        found = [replace(line, members=tuple(members)) for line in lines(place)] if place else []
        assert_ledger(rows, found, where=run.where(rank), ignore_control=False)
    return found
