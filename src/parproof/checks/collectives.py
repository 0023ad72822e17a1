"""Checks of the collectives experiment: every buffer of every rank, and the memory around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from parproof.checks.ledger import assert_ledger
from parproof.checks.provided import missing
from parproof.checks.provided import provided as provided_of
from parproof.checks.values import assert_exact
from parproof.cost.collective_traffic import Place, collective_traffic
from parproof.cost.traffic import Traffic
from parproof.errors import UsageError
from parproof.ranks.run import Run
from parproof.workloads.collective_cases import (
    ELEMENT_BYTES,
    LARGE_HALF,
    Buffer,
    Case,
    blocks,
    buffers,
    judged,
    reduce_ops,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from parproof.subjects.protocol import SubjectRef


@dataclass(frozen=True)
class Seen:
    """One buffer after one call."""

    where: str
    case: Case
    buffer: Buffer
    is_judged: bool
    observed: Tensor
    expected: Tensor
    around: Tensor

    @property
    def what(self) -> str:
        """How failure texts name it."""
        return f"{self.case}, {self.buffer.name}"


def provided(subject: SubjectRef, cases: Sequence[Case], aspect: str = "") -> list[Case]:
    """See checks.provided; where it provides none of these reductions, the same operations with others.

    aspect   «.async» (starts, and completes in `wait`), «.traffic» (its algorithm is one the cost model knows)
    """
    others = _other_reductions(cases)
    nothing = all(missing(subject, needs(case)) for case in cases)
    return provided_of(subject, others if nothing and others else cases, needs, aspect)


def needs(case: Case) -> tuple[str, ...]:
    """Capabilities that a case takes."""
    return (case.capability,)


def seen(run: Run, cases: Sequence[Case], groups: Sequence[Sequence[int]] | None = None) -> Iterator[Seen]:
    """All buffers of all ranks, in the order in which the rank programs packed them."""
    from parproof.oracles.collectives import after, before

    everyone = groups or [list(range(run.world_size))]
    answers = {(case, k): after(case, members) for case in set(cases) for k, members in enumerate(everyone)}
    for rank, result in enumerate(run.results):
        packed = result[-1] if isinstance(result, tuple) else result
        k = next((k for k, members in enumerate(everyone) if rank in members), 0)
        members = list(everyone[k])
        me = members.index(rank) if rank in members else -1
        tensors = iter(packed.tensors())
        for case in cases:
            plan = buffers(case, len(members), max(me, 0))
            views = [next(tensors) for _ in plan]
            surroundings = [next(tensors) for _ in plan]
            expected = answers[case, k][me] if me >= 0 else [before(case, buffer, rank) for buffer in plan]
            for buffer, view, around, answer in zip(plan, views, surroundings, expected, strict=True):
                yield Seen(run.where(rank), case, buffer, judged(case, buffer, me), view, answer, around)


def assert_outputs(run: Run, cases: Sequence[Case], groups: Sequence[Sequence[int]] | None = None) -> int:
    """Every participant's output is the oracle's, bit for bit. Returns the number of elements compared."""
    __tracebackhide__ = True
    compared = 0
    for item in seen(run, cases, groups):
        if item.is_judged:
            assert_exact(bits(item.observed), bits(item.expected), where=item.where, what=item.what)
            compared += item.expected.numel()
    if not compared and not all(case.layout == "zero_size" for case in cases):
        raise AssertionError(f"nothing was compared in {len(cases)} cases")
    return compared


def assert_kept(run: Run, cases: Sequence[Case], groups: Sequence[Sequence[int]] | None = None) -> int:
    """Inputs, buffers of non-roots and non-participants, and memory around every view are as before."""
    from parproof.workloads.collectives import SENTINEL

    __tracebackhide__ = True
    compared = 0
    for item in seen(run, cases, groups):
        if not item.is_judged:
            what = f"{item.what} (to be kept)"
            assert_exact(bits(item.observed), bits(item.expected), where=item.where, what=what)
        untouched = item.around.clone().fill_(SENTINEL)
        assert_exact(item.around, untouched, where=item.where, what=f"{item.what}: memory around the view")
        compared += item.around.numel() + (0 if item.is_judged else item.expected.numel())
    return compared


def bits(x: Tensor) -> Tensor:
    """A bool as its byte, so that a «True» that is stored as 2 differs from one that is stored as 1."""
    import torch

    return x.view(torch.uint8) if x.dtype == torch.bool else x


def _other_reductions(cases: Sequence[Case]) -> list[Case]:
    """The table is thinned; a subject of one reduction is judged by it where the table has others."""
    found = [
        replace(case, reduce_op=name) for case in cases if case.reduce_op for name in reduce_ops(case.dtype)
    ]
    return list(dict.fromkeys(found))


def algorithms(subject: SubjectRef, cases: Sequence[Case]) -> Mapping[str, str]:
    """op → algorithm of these blocking calls: see stated."""
    ops = dict.fromkeys(case.op for case in cases)
    return stated(subject, "collectives", [case.capability for case in cases], ops)


def stated(
    subject: SubjectRef, mechanism: str, capabilities: Iterable[str], needed: Iterable[str]
) -> Mapping[str, str]:
    """How a subject carries things, in its own word, with an entry for each that is needed.

    Errors   Unsupported when it says that it gives none for a capability; UsageError for a missing entry
    """
    for capability in capabilities:
        subject.require(f"{capability}.traffic")
    made = subject.make(mechanism)
    found: Mapping[str, str] = getattr(made, "algorithms", {})
    for entry in needed:
        if entry not in found:
            raise UsageError(
                f"{type(made).__name__}.algorithms has no entry for {entry}",
                expected="single_call, or the name of an algorithm in parproof.cost.collective_traffic",
                next_step=f"add one, or say in `lacks` that «{mechanism}.{entry}.*.traffic» is not provided",
            )
    return found


def predicted(case: Case, place: Place, algorithms: Mapping[str, str], phase: str) -> list[Traffic]:
    """What the cost model says one rank sends in one case."""
    given, taken = blocks(case, place.p, place.me)
    return collective_traffic(
        case.op,
        algorithms[case.op],
        place,
        given,
        taken,
        element_bytes=ELEMENT_BYTES[case.dtype],
        agreement=algorithms.get("agreement"),
        phase=phase,
    )


def assert_traffic(
    run: Run,
    cases: Sequence[Case],
    algorithms: Mapping[str, str],
    groups: Sequence[Sequence[int]] | None = None,
) -> list[Traffic]:
    """Calls and bytes of every rank equal the prediction, case by case, and nothing else occurred.

    Returns the prediction for the last rank.
    """
    __tracebackhide__ = True
    everyone = groups or [list(range(run.world_size))]
    lines: list[Traffic] = []
    for rank, ledger in enumerate(run.ledgers):
        members = next((list(m) for m in everyone if rank in m), [])
        lines = []
        for number, case in enumerate(cases if members else ()):
            place = Place(len(members), members.index(rank), case.root or 0)
            lines += predicted(case, place, algorithms, f"case{number}")
        # Barriers and object collectives count here: nobody asked for one.
        assert_ledger(ledger, lines, where=run.where(rank), ignore_control=False)
    return lines


def assert_large_half(run: Run, name: str) -> None:
    """Every element of the large float16 sum, the infinite ones included: the sum, rounded once."""
    from parproof.oracles.collectives import reduced
    from parproof.workloads.collectives import large_half

    __tracebackhide__ = True
    count, period = LARGE_HALF[name]
    expected = reduced([large_half(rank, name) for rank in range(run.world_size)], "sum")
    for rank, (num_odd, first, packed) in enumerate(run.results):
        what = f"large float16 sum ({name})"
        assert_exact(packed.tensors()[0], expected, where=run.where(rank), what=what)
        if num_odd:
            raise AssertionError(
                f"{run.where(rank)}: {what}: {num_odd} of {count} elements differ from those {period} places"
                f" before; first at {first}"
            )
