"""Checks of asynchronous, functional and differentiated collectives, and of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from parproof.checks.collectives import bits
from parproof.checks.values import assert_exact
from parproof.ranks.run import Run
from parproof.workloads.collective_cases import Case
from parproof.workloads.collective_forms import FORMS, Form

if TYPE_CHECKING:
    from torch import Tensor

    from parproof.subjects.protocol import SubjectRef


def provided(subject: SubjectRef, op: str, suffix: str = "") -> list[Form]:
    """The forms of an operation that the subject says it provides; Unsupported when none is left."""
    loaded = subject.load()
    kept = [form for form in FORMS[op] if loaded.reason_against(form.capability + suffix) is None]
    if not kept:
        subject.require(FORMS[op][0].capability + suffix)
    return kept


def needs_the_last_rank(case: Case, me: int, p: int) -> bool:
    """True if this rank's result cannot be there before the last rank has joined."""
    if me == p - 1:
        return False
    if case.op in ("reduce", "gather"):
        return me == case.root
    return case.op not in ("broadcast", "scatter") or case.root == p - 1


def assert_not_early(run: Run, cases: Sequence[Case]) -> None:
    """No handle calls itself complete while a rank it needs is still away."""
    __tracebackhide__ = True
    p = run.world_size
    for rank, (early, _) in enumerate(run.results):
        for case, flag in zip(cases, early, strict=True):
            if flag and needs_the_last_rank(case, rank, p):
                raise AssertionError(
                    f"{run.where(rank)}: {case}: is_completed() was True before rank {p - 1} had joined"
                )


def assert_functional(
    run: Run, forms: Sequence[tuple[Form, str, str]], members: Sequence[int], *, gradient: bool
) -> None:
    """Outputs and gradients equal the definition's, inputs are as before; exactly."""
    from parproof.oracles import collective_forms as oracle

    __tracebackhide__ = True
    for me, rank in enumerate(members):
        where, tensors = run.where(rank), iter(run.results[rank].tensors())
        for form, dtype, layout in forms:
            what = f"{form.op} {form.reduce_op or ''} dim {form.dim} {dtype} {layout}"
            outputs = oracle.values(form, dtype, members)[me]
            inputs = oracle.inputs(form, dtype, rank, me)
            for k, answer in enumerate(outputs):
                assert_exact(next(tensors), answer, where=where, what=f"{what}, output {k}")
            for k, answer in enumerate(inputs):
                assert_exact(next(tensors), answer, where=where, what=f"{what}, input {k} (to be kept)")
            for k, answer in enumerate(oracle.gradients(form, dtype, members)[me] if gradient else ()):
                assert_exact(next(tensors), answer, where=where, what=f"{what}, gradient {k}")


def assert_messages(
    run: Run,
    kind: str,
    dtypes: Sequence[str],
    shape: tuple[int, ...],
    members: Sequence[int],
) -> None:
    """Every message came from the rank it should, is the right one of that rank, and fell into its own place."""
    from parproof.oracles.collective_messages import expected_messages
    from parproof.workloads.collectives import SENTINEL, coded

    __tracebackhide__ = True
    p = len(members)
    for me, rank in enumerate(members):
        senders, packed = run.results[rank]
        claimed, tensors, where = iter(senders), iter(packed.tensors()), run.where(rank)
        for dtype in dtypes:
            expected = expected_messages(kind, p, me)
            got = [next(claimed) for _ in expected]
            if kind == "any_source":
                _assert_same_senders(got, [j for j, _ in expected], where)
                expected = [(j, 0) for j in got]
            for number, (sender, slot) in enumerate(expected):
                what = f"{kind} {dtype}: message {number}"
                if got[number] != sender:
                    raise AssertionError(f"{where}: {what} is said to be from {got[number]}, not {sender}")
                message, around = next(tensors), next(tensors)
                answer = coded(members[sender], slot, shape, dtype, None)
                assert_exact(bits(message), bits(answer), where=where, what=f"{what} from {sender}")
                _assert_untouched(around, SENTINEL, where, what)


def _assert_same_senders(got: Sequence[int], expected: Sequence[int], where: str) -> None:
    __tracebackhide__ = True
    if sorted(got) != sorted(expected):
        raise AssertionError(f"{where}: any source: senders {sorted(got)}, expected {sorted(expected)}")


def _assert_untouched(around: Tensor, sentinel: int, where: str, what: str) -> None:
    __tracebackhide__ = True
    assert_exact(around, around.clone().fill_(sentinel), where=where, what=f"{what}: memory around the view")
