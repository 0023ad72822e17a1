"""Runs of the collectives experiment that several claims judge: which program, on what. Each is made once.

`ranks` is the fixture of that name, or anything that gives `run_once` for a world size.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from parproof.checks import collective_forms, collective_ledgers, collectives
from parproof.workloads import collective_cases as table
from parproof.workloads import collective_forms as forms

if TYPE_CHECKING:
    from parproof.cost.traffic import Traffic
    from parproof.ranks.run import Run
    from parproof.subjects.protocol import SubjectRef

FormCase = tuple[forms.Form, str, str]
MESSAGE_DTYPES = ("float64", "bfloat16", "int16", "bool")


class Pool(Protocol):
    """Ranks of one world."""

    def run_once(self, program: Callable[..., Any], *arguments: Any, **keywords: Any) -> Run:
        """The run of this program on these arguments."""
        ...


Ranks = Callable[[int], Pool]


@functools.cache
def _token(subject: str, what: str) -> str:
    """A name in the store that no other run has used: of another subject, or in another process."""
    return uuid.uuid4().hex


def waiting(ranks: Ranks, subject: SubjectRef, op: str) -> tuple[Run, list[table.Case]]:
    """Asynchronous calls that the last rank joins when the others have looked at their handles."""
    from parproof import programs

    cases = collectives.provided(subject, table.waiting_cases(op, 3), ".async")
    token = _token(str(subject), op)
    return ranks(3).run_once(programs.collective_forms.held_back, subject, cases, token), cases


def in_flight(ranks: Ranks, subject: SubjectRef) -> tuple[Run, list[table.Case]]:
    """All of them started before one is waited for."""
    from parproof import programs

    every = [case for op in table.OPS for case in table.waiting_cases(op, 3)]
    cases = collectives.provided(subject, every, ".async")
    return ranks(3).run_once(programs.collective_forms.all_in_flight, subject, cases), cases


def barrier(ranks: Ranks, subject: SubjectRef) -> Run:
    """A barrier that the last of four ranks enters late."""
    from parproof import programs

    return ranks(4).run_once(programs.collective_forms.barrier, subject, _token(str(subject), "barrier"))


def functional(
    ranks: Ranks, subject: SubjectRef, op: str, layout: str, group: str, *, gradient: bool, aspect: str = ""
) -> tuple[Run, list[FormCase], Sequence[int]]:
    """The functional forms of an operation that the subject provides; with an aspect, if it provides that of all."""
    from parproof import programs

    world, members = forms.FORM_GROUPS[group]
    suffix = ".gradient" if gradient else ""
    kept = collective_forms.provided(subject, op, suffix)
    for form in kept if aspect else ():
        subject.require(form.capability + suffix + aspect)
    dtypes = ("float64", "bfloat16") if gradient else forms.dtypes(layout)
    cases = [(form, dtype, layout) for form in kept for dtype in dtypes if form.takes(dtype)]
    program = programs.collective_forms.functional
    return ranks(world).run_once(program, subject, cases, members, gradient=gradient), cases, members


def messages(
    ranks: Ranks, subject: SubjectRef, kind: str, layout: str, group: str
) -> tuple[Run, str, Sequence[str], tuple[int, ...], Sequence[int]]:
    """(run, kind, dtypes, shape, members) of one pattern of messages."""
    from parproof import programs

    subject.require(f"point_to_point.{kind}.{layout}")
    world, members = forms.FORM_GROUPS[group]
    shape, program = table.SHAPES.get(layout, table.SHAPE), programs.collective_messages.messages
    run = ranks(world).run_once(program, subject, kind, MESSAGE_DTYPES, shape, layout, members)
    return run, kind, MESSAGE_DTYPES, shape, members


def objects(ranks: Ranks, subject: SubjectRef, op: str, group: str) -> tuple[Run, str, Sequence[int]]:
    """(run, op, members) of one object collective."""
    from parproof import programs

    world, members = forms.FORM_GROUPS[group]
    return (
        ranks(world).run_once(programs.collective_messages.objects, subject, op, members),
        op,
        members,
    )


def form_ledgers() -> list[tuple[str, ...]]:
    """Forms whose ledgers are judged: (kind of form, what of it). Layouts do not change what is sent: few will do."""
    found: list[tuple[str, ...]] = [("waiting", op) for op in table.OPS]
    found += [("in_flight",), ("barrier",)]
    for op in forms.FORMS:
        found += [("values", op, "contiguous", "world"), ("gradient", op, "transposed", "without_rank_0")]
    for kind in forms.MESSAGE_KINDS:
        found.append(("messages", kind, "odd_large", "world"))
        if kind != "functional":  # its group is C5's finding in torch, which ends the run
            found.append(("messages", kind, "contiguous", "without_rank_0"))
    return found + [("objects", op, group) for op in forms.OBJECT_OPS for group in forms.FORM_GROUPS]


def assert_form_ledger(
    ranks: Ranks, subject: SubjectRef, kind: str, *of: str
) -> tuple[Run, Sequence[Traffic]]:
    """One of form_ledgers, on the run that its values are judged by. Returns the last rank's prediction too."""
    __tracebackhide__ = True
    match kind:
        case "waiting":
            run, cases = waiting(ranks, subject, *of)
            return run, collective_ledgers.assert_asynchronous(run, subject, cases, in_turn=True)
        case "in_flight":
            run, cases = in_flight(ranks, subject)
            return run, collective_ledgers.assert_asynchronous(run, subject, cases, in_turn=False)
        case "barrier":
            run = barrier(ranks, subject)
            return run, collective_ledgers.assert_barrier(run, subject)
        case "messages":
            sent = messages(ranks, subject, *of)
            return sent[0], collective_ledgers.assert_messages(sent[0], subject, *sent[1:])
        case "objects":
            told = objects(ranks, subject, *of)
            return told[0], collective_ledgers.assert_objects(told[0], subject, *told[1:])
    gradient = kind == "gradient"
    run, made, members = functional(ranks, subject, *of, gradient=gradient, aspect=".traffic")
    return run, collective_ledgers.assert_functional(run, subject, made, members, gradient=gradient)
