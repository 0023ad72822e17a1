"""Checks of asynchronous, functional and differentiated collectives, and of messages."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parproof.checks.collectives import assert_kept, assert_outputs, bits
from parproof.checks.values import assert_exact
from parproof.ranks.run import Run
from parproof.workloads.collective_cases import SHAPE, SHAPES, Case
from parproof.workloads.collective_coalesced import Coalesced
from parproof.workloads.collective_forms import FormCase, Groups, message_dtypes

if TYPE_CHECKING:
    from torch import Tensor


def needs_the_last_rank(case: Case, me: int, p: int) -> bool:
    """True if this rank's result cannot be there before the last rank has joined."""
    if me == p - 1:
        return False
    if case.op in ("reduce", "gather"):
        return me == case.root
    return case.op not in ("broadcast", "scatter") or case.root == p - 1


def assert_not_early(run: Run, cases: Sequence[Case], groups: Groups) -> None:
    """No handle calls itself complete while a rank it needs is still away."""
    __tracebackhide__ = True
    for members in groups:
        for me, rank in enumerate(members):
            flags, _ = run.results[rank]
            for case, (early, _) in zip(cases, flags, strict=True):
                if early and needs_the_last_rank(case, me, len(members)):
                    raise AssertionError(
                        f"{run.where(rank)}: {case}: is_completed() was True before rank {members[-1]} had joined"
                    )


def assert_complete(made: Iterable[tuple[Run, Sequence[tuple[int, str]], Groups]]) -> None:
    """In each run, the handles with these numbers call themselves complete after `wait`; there are some."""
    __tracebackhide__ = True
    num_asked = 0
    for run, handles, groups in made:
        for rank, (number, what) in itertools.product(itertools.chain(*groups), handles):
            num_asked += 1
            if not run.results[rank][0][number][1]:
                raise AssertionError(f"{run.where(rank)}: {what}: is_completed() is False after wait")
    if not num_asked:
        raise AssertionError("no handle was asked")


def assert_coalesced(run: Run, batches: Sequence[Coalesced], groups: Groups) -> int:
    """Every tensor holds the oracle's value, what is no result stays, and no handle is complete before it can be."""
    __tracebackhide__ = True
    cases = [part for batch in batches for part in batch.parts]
    assert_not_early(run, [batch.parts[0] for batch in batches], groups)
    compared = assert_outputs(run, cases, groups)
    return compared + assert_kept(run, cases, groups)


def assert_barrier(run: Run, groups: Groups) -> None:
    """Nobody leaves before the last of the group has come."""
    __tracebackhide__ = True
    for members in groups:
        for rank in members:
            if not run.results[rank]:
                raise AssertionError(f"{run.where(rank)} left the barrier before rank {members[-1]} had come")


def assert_functional(run: Run, cases: Sequence[FormCase], groups: Groups) -> int:
    """Outputs and gradients equal the definition's, inputs are as before; exactly. Returns the elements compared."""
    from parproof.oracles import collective_forms as oracle

    __tracebackhide__ = True
    compared = 0
    for members in groups:
        answers = {case: oracle.values(case, members) for case in cases}
        gradients = {case: oracle.gradients(case, members) for case in cases if case.gradient}
        for me, rank in enumerate(members):
            where, tensors = run.where(rank), iter(run.results[rank].tensors())
            for case in cases:
                expected = {"output {}": answers[case][me]}
                expected["input {} (to be kept)"] = oracle.inputs(case, len(members), rank, me)
                expected["gradient {}"] = gradients[case][me] if case.gradient else []
                for word, tensor in expected.items():
                    for k, answer in enumerate(tensor):
                        what = f"{case}, {word.format(k)}"
                        assert_exact(bits(next(tensors)), bits(answer), where=where, what=what)
                        compared += answer.numel()
    if not compared and not all(case.layout == "zero_size" for case in cases):
        raise AssertionError(f"nothing was compared in {len(cases)} cases")
    return compared


def assert_messages(run: Run, patterns: Sequence[tuple[str, str]], groups: Groups) -> None:
    """Every message came from the rank it should, is the right one of that rank, and fell into its own place.

    Every handle was complete after `wait`.
    """
    __tracebackhide__ = True
    for members in groups:
        for me, rank in enumerate(members):
            senders, unfinished, packed = run.results[rank]
            box = _Box(run.where(rank), members, me, iter(senders), iter(packed.tensors()))
            for kind, layout in patterns:
                for dtype in message_dtypes(layout):
                    _assert_pattern(box, kind, layout, dtype)
            if unfinished:
                raise AssertionError(
                    f"{run.where(rank)}: {unfinished[0]}: is_completed() is False after wait"
                )


@dataclass(frozen=True)
class _Box:
    """What one rank took, in order."""

    where: str
    members: Sequence[int]
    me: int
    claimed: Iterator[int]
    tensors: Iterator[Tensor]


def _assert_pattern(box: _Box, kind: str, layout: str, dtype: str) -> None:
    from parproof.oracles.collective_messages import expected_messages
    from parproof.workloads.collectives import SENTINEL, coded

    __tracebackhide__ = True
    expected = expected_messages(kind, len(box.members), box.me)
    got = [next(box.claimed) for _ in expected]
    if kind == "any_source":
        _assert_same_senders(got, [j for j, _ in expected], f"{box.where}: {layout} {dtype}")
        expected = [(j, 0) for j in got]
    for number, (sender, slot) in enumerate(expected):
        what = f"{kind} {dtype} {layout}: message {number}"
        if got[number] != sender:
            raise AssertionError(f"{box.where}: {what} is said to be from {got[number]}, not {sender}")
        message, around = next(box.tensors), next(box.tensors)
        answer = coded(box.members[sender], slot, SHAPES.get(layout, SHAPE), dtype, None)
        assert_exact(bits(message), bits(answer), where=box.where, what=f"{what} from {sender}")
        _assert_untouched(around, SENTINEL, box.where, what)


def assert_objects(run: Run, ops: Sequence[str], groups: Groups) -> None:
    """Everybody in a group has what he should by each operation, and who is in none has nothing."""
    from parproof.oracles.collective_messages import expected_object

    __tracebackhide__ = True
    for rank, found in enumerate(run.results):
        members = next((members for members in groups if rank in members), ())
        for op in ops if members else ():
            expected = expected_object(op, members, members.index(rank))
            if found[op] != expected:
                raise AssertionError(f"{run.where(rank)}: {op} gave {str(found[op])[:80]}")


def _assert_same_senders(got: Sequence[int], expected: Sequence[int], where: str) -> None:
    __tracebackhide__ = True
    if sorted(got) != sorted(expected):
        raise AssertionError(f"{where}: any source: senders {sorted(got)}, expected {sorted(expected)}")


def _assert_untouched(around: Tensor, sentinel: int, where: str, what: str) -> None:
    __tracebackhide__ = True
    assert_exact(around, around.clone().fill_(sentinel), where=where, what=f"{what}: memory around the view")
