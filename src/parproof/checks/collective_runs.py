"""Runs of the collectives experiment that several claims judge: which program, on what. Each is made once.

`ranks` is the fixture of that name, or anything that gives `run_once` for a world size.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from parproof.checks import collective_ledgers as ledgers
from parproof.checks import collectives
from parproof.checks.provided import provided
from parproof.workloads import collective_cases as table
from parproof.workloads import collective_coalesced as coalescing
from parproof.workloads import collective_forms as forms

if TYPE_CHECKING:
    from parproof.cost.traffic import Traffic
    from parproof.ranks.run import Run
    from parproof.subjects.protocol import SubjectRef


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


def waiting(
    ranks: Ranks, subject: SubjectRef, op: str, group: str
) -> tuple[Run, list[table.Case], forms.Groups]:
    """Asynchronous calls that the last rank of a group joins when the others have looked at their handles."""
    from parproof import programs

    world, groups = forms.FORM_GROUPS[group]
    cases = forms.waiting_cases(op, len(groups[0]))
    cases = collectives.provided(subject, cases, ".async")
    program, token = programs.collective_forms.held_back, _token(str(subject), f"{op} {group}")
    return ranks(world).run_once(program, subject, cases, groups, token), cases, groups


def in_flight(ranks: Ranks, subject: SubjectRef) -> tuple[Run, list[table.Case]]:
    """All of them started before one is waited for."""
    from parproof import programs

    every = [case for op in table.OPS for case in forms.waiting_cases(op, 3)]
    cases = collectives.provided(subject, every, ".async")
    return ranks(3).run_once(programs.collective_forms.all_in_flight, subject, cases), cases


def barrier(ranks: Ranks, subject: SubjectRef, group: str) -> tuple[Run, forms.Groups]:
    """A barrier that the last rank of a group enters late; groups take turns."""
    from parproof import programs

    world, groups = forms.FORM_GROUPS[group]
    program, token = programs.collective_forms.barrier, _token(str(subject), f"barrier {group}")
    return ranks(world).run_once(program, subject, groups, token), groups


def functional(
    ranks: Ranks, subject: SubjectRef, ops: str, layouts: str, group: str, *, gradient: bool, aspect: str = ""
) -> tuple[Run, list[forms.FormCase], forms.Groups]:
    """The functional forms that the subject provides; with an aspect, if it provides that of all."""
    from parproof import programs

    world, groups = forms.FORM_GROUPS[group]
    if layouts == "autograd":
        asked = forms.autograd_cases(ops)
    elif layouts == "group_cases":
        asked = forms.group_cases(forms.OPS_OF[ops])
    else:
        asked = forms.cases(forms.OPS_OF[ops], forms.LAYOUT_SETS[layouts], gradient=gradient)
    cases = provided(subject, asked, lambda case: case.capabilities)
    for capability in {c for case in cases for c in case.capabilities} if aspect else ():
        subject.require(capability + aspect)
    return ranks(world).run_once(programs.collective_forms.functional, subject, cases, groups), cases, groups


def messages(
    ranks: Ranks, subject: SubjectRef, kinds: str, layouts: str, group: str
) -> tuple[Run, Sequence[str], Sequence[str], forms.Groups]:
    """(run, patterns, layouts, groups): the patterns and layouts of messages that the subject provides."""
    from parproof import programs

    world, groups = forms.FORM_GROUPS[group]
    patterns = forms.KINDS_OF[kinds]
    kept = provided(
        subject,
        forms.LAYOUT_SETS[layouts],
        lambda layout: [f"point_to_point.{kind}.{layout}" for kind in patterns],
    )
    run = ranks(world).run_once(programs.collective_messages.messages, subject, patterns, kept, groups)
    return run, patterns, kept, groups


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
    program, token = (
        programs.collective_coalesced.coalesced,
        _token(str(subject), f"coalesced {form} {group}"),
    )
    return ranks(world).run_once(program, subject, batches, groups, token), batches, groups


def form_ledgers() -> list[tuple[str, ...]]:
    """Forms whose ledgers are judged: (kind of form, what of it). Layouts do not change what is sent: few will do."""
    found: list[tuple[str, ...]] = [("waiting", *place) for place in forms.waiting_places()]
    found += [("in_flight",), *(("barrier", group) for group in forms.FORM_GROUPS)]
    for kind, places in (("values", forms.value_places()), ("gradient", forms.gradient_places())):
        found += [(kind, *place) for place in places if place[1] in ("dense", "group_cases", "autograd")]
    for place in forms.message_places():
        # Functional messages in a group are C5's finding in torch, which ends the run.
        if place[1] != "views" and (place[0] != "functional" or place[2] != "without_rank_0"):
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
            run, patterns, layouts, groups = messages(ranks, subject, *of)
            return run, ledgers.assert_messages(run, subject, patterns, layouts, groups)
        case "objects":
            run, ops, groups = objects(ranks, subject, *of)
            return run, ledgers.assert_objects(run, subject, ops, groups)
    gradient = kind == "gradient"
    run, made, groups = functional(ranks, subject, *of, gradient=gradient, aspect=".traffic")
    return run, ledgers.assert_functional(run, subject, made, groups)
