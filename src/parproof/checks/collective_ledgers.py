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
    in_one_call,
    message_traffic,
    object_traffic,
    operations,
)
from parproof.cost.collective_traffic import Place, collective_traffic
from parproof.cost.traffic import Traffic
from parproof.ranks.run import Run
from parproof.workloads.collective_cases import ELEMENT_BYTES, SHAPE, SHAPES, Case
from parproof.workloads.collective_coalesced import Coalesced
from parproof.workloads.collective_forms import (
    ROOT,
    FormCase,
    Groups,
    form_blocks,
    message_dtypes,
    object_receiver,
)

if TYPE_CHECKING:
    from parproof.subjects.protocol import SubjectRef


def assert_asynchronous(
    run: Run, subject: SubjectRef, cases: Sequence[Case], groups: Groups, *, in_turn: bool
) -> list[Traffic]:
    """Started and waited for, each case sends what the blocking call sends; in_turn: in a phase of its own."""
    __tracebackhide__ = True
    ways = algorithms(subject, cases)
    numbered = list(enumerate(cases))
    return _judged(
        run,
        groups,
        lambda place: [
            line
            for number, case in numbered
            for line in predicted(
                case, replace(place, root=case.root or 0), ways, f"case{number}" if in_turn else ""
            )
        ],
    )


def assert_barrier(run: Run, subject: SubjectRef, groups: Groups) -> list[Traffic]:
    """One call of torch's barrier, or the notes of its algorithm."""
    __tracebackhide__ = True
    ways = stated(subject, "collectives", ["collectives.barrier"], ["barrier"])
    none: list[int] = []
    return _judged(
        run,
        groups,
        lambda place: collective_traffic(
            "barrier", ways["barrier"], place, none, none, element_bytes=1, agreement=ways.get("agreement")
        ),
    )


def assert_coalesced(
    run: Run, subject: SubjectRef, batches: Sequence[Coalesced], groups: Groups
) -> list[Traffic]:
    """Each call in its phase: one for all its tensors, or one for each, as the subject says."""
    __tracebackhide__ = True
    ways = stated(
        subject,
        "coalesced_collectives",
        [capability for batch in batches for capability in batch.capabilities],
        [*(part.op for batch in batches for part in batch.parts), "coalesced"],
    )

    def lines(place: Place) -> list[Traffic]:
        found = []
        for number, batch in enumerate(batches):
            ones = [predicted(part, place, ways, f"case{number}") for part in batch.parts]
            found += in_one_call([line for one in ones for line in one], ways, batch.parts[0].op)
        return found

    return _judged(run, groups, lines)


def assert_functional(
    run: Run, subject: SubjectRef, cases: Sequence[FormCase], groups: Groups
) -> list[Traffic]:
    """Each form in its phase, forward and backward apart."""
    __tracebackhide__ = True
    mechanism, capabilities = cases[0].mechanism, [case.capabilities[-1] for case in cases]
    told = stated(subject, mechanism, capabilities, ())
    needed = [
        op
        for case in cases
        for op in operations(case.form.op, told, gradient=case.gradient, reduce_op=case.form.reduce_op)
    ]
    ways = stated(subject, mechanism, capabilities, needed)

    def lines(place: Place) -> list[Traffic]:
        return [
            line
            for number, case in enumerate(cases)
            for line in functional_traffic(
                case.form.op,
                ways,
                replace(place, root=ROOT),
                form_blocks(case, place.p, place.me),
                element_bytes=ELEMENT_BYTES[case.dtype],
                gradient=case.gradient,
                reduce_op=case.form.reduce_op,
                phase=f"case{number}",
            )
        ]

    return _judged(run, groups, lines)


def assert_messages(run: Run, patterns: Sequence[tuple[str, str]], groups: Groups) -> list[Traffic]:
    """As many sends as others await from this rank, as many receives as it awaits; nothing in a second copy."""
    __tracebackhide__ = True
    each = [(*pattern, dtype) for pattern in patterns for dtype in message_dtypes(pattern[1])]
    return _judged(run, groups, lambda place: [line for of in each for line in _mail(place, *of)])


def _mail(place: Place, kind: str, layout: str, dtype: str) -> list[Traffic]:
    from parproof.oracles.collective_messages import expected_messages

    awaited = [expected_messages(kind, place.p, me) for me in range(place.p)]
    sends = sum(sender == place.me for of_rank in awaited for sender, _ in of_rank)
    receives = len(awaited[place.me])
    message_bytes = math.prod(SHAPES.get(layout, SHAPE)) * ELEMENT_BYTES[dtype]
    return message_traffic(place.p, sends, receives, message_bytes, f"{kind}/{layout}/{dtype}")


def assert_objects(run: Run, subject: SubjectRef, ops: Sequence[str], groups: Groups) -> list[Traffic]:
    """The pickles and their sizes; what torch itself sends for an object is tagged as control, all of it."""
    __tracebackhide__ = True
    ways = stated(subject, "object_collectives", [f"object_collectives.{op}" for op in ops], ["objects"])
    whole = ways["objects"] == "single_call"

    def lines(place: Place, members: Sequence[int]) -> list[Traffic]:
        receiver = object_receiver(place.p)
        return [
            replace(line, phase=op)
            for op in ops
            for line in object_traffic(
                op, ways, replace(place, root=ROOT), _pickled(op, members, one_by_one=whole), receiver
            )
        ]

    found = _judged_in(run, groups, lines)
    for rank, rows in enumerate(run.ledgers if whole else ()):
        untagged = [row.describe() for row in rows if not row.control]
        if untagged:
            raise AssertionError(f"{run.where(rank)}: objects: not tagged as control: {untagged[0]}")
    return found


def _pickled(op: str, members: Sequence[int], *, one_by_one: bool) -> list[int]:
    """Bytes of every pickle that the operation has to move; the root is the group's second rank."""
    from parproof.oracles.collective_messages import handed_in

    values = handed_in(op, members)
    together = op in ("broadcast_objects", "send_objects") and not one_by_one
    return [len(pickle.dumps(value)) for value in ([values] if together else values)]


def _judged(run: Run, groups: Groups, lines: Callable[[Place], list[Traffic]]) -> list[Traffic]:
    """See _judged_in: whoever the members are."""
    __tracebackhide__ = True
    return _judged_in(run, groups, lambda place, _: lines(place))


def _judged_in(
    run: Run, groups: Groups, lines: Callable[[Place, Sequence[int]], list[Traffic]]
) -> list[Traffic]:
    """Every rank's ledger against its prediction, control traffic too; who is in no group sends nothing.

    Returns the prediction for the last rank.
    """
    __tracebackhide__ = True
    found: list[Traffic] = []
    for rank, rows in enumerate(run.ledgers):
        members = next((members for members in groups if rank in members), ())
        found = lines(Place(len(members), members.index(rank)), members) if members else []
        found = [replace(line, members=members) for line in found]
        assert_ledger(rows, found, where=run.where(rank), ignore_control=False)
    return found
