"""Runs of the collectives experiment that several claims judge: which program, on what. Each is made once.

`ranks` is the fixture of that name, or anything that gives `run_once` for a world size and a deadline.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from parproof.checks import collective_ledgers as ledgers
from parproof.checks import collectives
from parproof.checks.provided import missing, provided
from parproof.workloads import collective_cases as table
from parproof.workloads import collective_coalesced as coalescing
from parproof.workloads import collective_forms as forms
from parproof.workloads import collective_waiting as waits

if TYPE_CHECKING:
    from parproof.cost.traffic import Traffic
    from parproof.ranks.run import Run
    from parproof.subjects.protocol import SubjectRef


class Pool(Protocol):
    """Ranks of one world."""

    def run_once(self, program: Callable[..., Any], *arguments: Any, **keywords: Any) -> Run:
        """The run of this program on these arguments."""
        ...


Ranks = Callable[..., Pool]
BARRIER_DEADLINE_S = 15.0  # a barrier that waits for the wrong ranks ends with the run


def waiting(
    ranks: Ranks, subject: SubjectRef, op: str, group: str
) -> tuple[Run, list[table.Case], forms.Groups]:
    """Asynchronous calls that the last rank of a group joins when the others have looked at their handles."""
    from parproof import programs

    world, groups = forms.FORM_GROUPS[group]
    cases = waits.waiting_cases(op, len(groups[0]))
    cases = collectives.provided(subject, cases, ".async")
    return ranks(world).run_once(programs.collective_forms.held_back, subject, cases, groups), cases, groups


def handles(
    ranks: Ranks, subject: SubjectRef, of: str
) -> Iterator[tuple[Run, list[tuple[int, str]], forms.Groups]]:
    """(run, (number of each handle, of what) of one operation or coalesced form, groups): on the runs of their values."""
    coalesces = of in coalescing.FORMS
    places = coalescing.places() if coalesces else waits.waiting_places()
    for what, group in places:
        if what not in (of, "most" if coalesces and of in coalescing.MOST else "all"):
            continue
        if coalesces:
            run, batches, groups = coalesced(ranks, subject, what, group)
            chosen = [
                (k, batch.form) for k, batch in enumerate(batches) if batch.form == of and batch.is_async
            ]
        else:
            run, cases, groups = waiting(ranks, subject, what, group)
            chosen = [(k, str(case)) for k, case in enumerate(cases) if case.op == of]
        yield run, chosen, groups


def in_flight(ranks: Ranks, subject: SubjectRef) -> tuple[Run, list[table.Case]]:
    """All of them started before one is waited for."""
    from parproof import programs

    every = [case for op in table.OPS for case in waits.waiting_cases(op, 3)]
    cases = collectives.provided(subject, every, ".async")
    return ranks(3).run_once(programs.collective_forms.all_in_flight, subject, cases), cases


def barrier(ranks: Ranks, subject: SubjectRef, group: str) -> tuple[Run, forms.Groups]:
    """A barrier that the last rank of a group enters late; groups take turns."""
    from parproof import programs

    world, groups = forms.FORM_GROUPS[group]
    held = ranks(world, deadline_s=BARRIER_DEADLINE_S)
    return held.run_once(programs.collective_forms.barrier, subject, groups), groups


def functional(
    ranks: Ranks, subject: SubjectRef, ops: str, layouts: str, group: str, *, gradient: bool, aspect: str = ""
) -> tuple[Run, list[forms.FormCase], forms.Groups]:
    """The functional forms that the subject provides; with an aspect, if it provides that of all."""
    from parproof import programs

    world, groups = forms.FORM_GROUPS[group]
    if layouts.startswith("autograd"):
        asked = forms.autograd_cases(ops, layouts)
    elif layouts == "group_cases":
        asked = [_with_what_there_is(subject, case) for case in forms.group_cases(ops)]
    else:
        asked = forms.cases(forms.OPS_OF[ops], forms.LAYOUT_SETS[layouts], gradient=gradient)
    cases = provided(subject, asked, lambda case: case.capabilities)
    for capability in {c for case in cases for c in case.capabilities} if aspect else ():
        subject.require(capability + aspect)
    return ranks(world).run_once(programs.collective_forms.functional, subject, cases, groups), cases, groups


def _with_what_there_is(subject: SubjectRef, case: forms.FormCase) -> forms.FormCase:
    """The case, without a gradient where the subject has its value alone."""
    value = replace(case, gradient=False)
    lacks_gradient = missing(subject, case.capabilities) and not missing(subject, value.capabilities)
    return value if lacks_gradient else case


def messages(
    ranks: Ranks, subject: SubjectRef, kinds: str, layouts: str, group: str, *, aspect: str = ""
) -> tuple[Run, Sequence[tuple[str, str]], forms.Groups]:
    """(run, patterns with their layouts, groups): what the subject provides of them, with that aspect of each pattern."""
    from parproof import programs

    world, groups = forms.FORM_GROUPS[group]
    asked = list(itertools.product(forms.KINDS_OF[kinds], forms.LAYOUT_SETS[layouts]))
    patterns = provided(subject, asked, lambda of: [f"point_to_point.{of[0]}.{of[1]}"])
    if aspect:
        patterns = provided(subject, patterns, lambda of: [f"point_to_point.{of[0]}{aspect}"])
    return (
        ranks(world).run_once(programs.collective_messages.messages, subject, patterns, groups),
        patterns,
        groups,
    )


def objects(ranks: Ranks, subject: SubjectRef, group: str) -> tuple[Run, Sequence[str], forms.Groups]:
    """(run, operations, groups) of the object collectives that the subject provides."""
    from parproof import programs

    world, groups = forms.FORM_GROUPS[group]
    ops = provided(subject, forms.OBJECT_OPS, lambda op: [f"object_collectives.{op}"])
    return ranks(world).run_once(programs.collective_messages.objects, subject, ops, groups), ops, groups


def coalesced(
    ranks: Ranks, subject: SubjectRef, form: str, group: str, *, aspect: str = ""
) -> tuple[Run, list[coalescing.Coalesced], forms.Groups]:
    """Coalesced calls, blocking and asynchronous in turn; the last rank of a group joins the latter late."""
    from parproof import programs

    world, groups = forms.FORM_GROUPS[group]
    batches = provided(subject, coalescing.batches_of(form), lambda batch: batch.capabilities, aspect)
    run = ranks(world).run_once(programs.collective_coalesced.coalesced, subject, batches, groups)
    return run, batches, groups


def form_ledgers() -> list[tuple[str, ...]]:
    """Forms whose ledgers are judged: (kind of form, what of it). Layouts do not change what is sent: few will do."""
    found: list[tuple[str, ...]] = [("waiting", *place) for place in waits.waiting_places()]
    found += [("in_flight",), *(("barrier", group) for group in forms.FORM_GROUPS)]
    for kind, places in (("values", forms.value_places()), ("gradient", forms.gradient_places())):
        found += [(kind, *place) for place in places if place[1] not in ("views", "zero_size")]
    for place in forms.message_places():
        if place[1] != "views":
            found.append(("messages", *place))
    found += [("coalesced", *place) for place in coalescing.places()]
    return found + [("objects", group) for group in forms.FORM_GROUPS]


def assert_form_ledger(
    ranks: Ranks, subject: SubjectRef, kind: str, *of: str
) -> tuple[Run, Sequence[Traffic]]:
    """One of form_ledgers, on the run that its values are judged by. Returns the last rank's prediction too."""
    __tracebackhide__ = True
    match kind:
        case "waiting":
            run, cases, groups = waiting(ranks, subject, *of)
            return run, ledgers.assert_asynchronous(run, subject, cases, groups, in_turn=True)
        case "in_flight":
            run, cases = in_flight(ranks, subject)
            return run, ledgers.assert_asynchronous(
                run, subject, cases, (tuple(range(run.world_size)),), in_turn=False
            )
        case "barrier":
            run, groups = barrier(ranks, subject, *of)
            return run, ledgers.assert_barrier(run, subject, groups)
        case "coalesced":
            run, batches, groups = coalesced(ranks, subject, *of, aspect=".traffic")
            return run, ledgers.assert_coalesced(run, subject, batches, groups)
        case "messages":
            run, patterns, groups = messages(ranks, subject, *of, aspect=".traffic")
            return run, ledgers.assert_messages(run, patterns, groups)
        case "objects":
            run, ops, groups = objects(ranks, subject, *of)
            return run, ledgers.assert_objects(run, subject, ops, groups)
    gradient = kind == "gradient"
    run, made, groups = functional(ranks, subject, *of, gradient=gradient, aspect=".traffic")
    return run, ledgers.assert_functional(run, subject, made, groups)
