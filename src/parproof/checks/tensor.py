"""Checks of parts against the whole: every element is somewhere, every part is right, copies are equal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from parproof.checks.bounds import reassociation_bound
from parproof.checks.provided import provided as provided_of
from parproof.checks.values import assert_exact, assert_within
from parproof.cost.tensor_plan import attention_plan
from parproof.errors import InvalidPlan
from parproof.oracles.tensor import Answer, unsplit
from parproof.programs.tensor import Outcome
from parproof.subjects.protocol import SubjectRef
from parproof.subjects.tensor_protocol import HeadPlan, Piece
from parproof.workloads.tensor import Case
from parproof.workloads.tensor import may_refuse as case_may_refuse

NORM_RELATIVE = 1e-13


def provided(subject: SubjectRef, cases: Sequence[Case], p: int, aspect: str = "") -> list[Case]:
    """See checks.provided."""
    return provided_of(subject, cases, lambda case: (capability(case, p),), aspect)


def capability(case: Case, p: int) -> str:
    """How a subject's `lacks` and `offers` name a layer; sharing KV heads between ranks is an ability of its own."""
    if case.kind != "attention":
        return f"tensor.{case.kind}"
    try:
        plan = attention_plan(case.options["q_heads"], case.options["kv_heads"], p)
    except InvalidPlan:
        return "tensor.attention"
    return f"tensor.attention.{plan['kv_mode']}"


def rounding_bound(dtype: torch.dtype, ranks: int, length: int, norm: float, total: float) -> float:
    """L2 error that re-ordered sums may make in a tensor of this norm: docs/numerics.md, tensor parallelism."""
    eps = torch.finfo(dtype).eps
    return reassociation_bound(eps, norm=norm, all_norm=total, ranks=ranks, length=length)


def answered(outcomes: Sequence[Outcome], case_name: str, *, may_refuse: bool) -> bool:
    """Did the ranks give an answer? Refusing is fine where the sizes are odd, if all ranks do."""
    __tracebackhide__ = True
    refusals = {rank: o.refused for rank, o in enumerate(outcomes) if o.refused is not None}
    for rank, text in refusals.items():
        if not may_refuse or len(refusals) != len(outcomes):
            others = "it must be answered" if not may_refuse else "another rank answered"
            raise AssertionError(
                f"rank {rank} of {len(outcomes)}: {case_name}: refused, but {others}: {text}"
            )
    return not refusals


def assert_pieces(
    pieces: Sequence[Sequence[Piece]],
    whole: Tensor,
    *,
    dtype: torch.dtype,
    what: str,
    bound: float | None = None,
) -> None:
    """Each rank's pieces equal their part of the whole (within the bound), copies agree bit for bit, none is missing.

    pieces   pieces[rank]: what the rank holds
    whole    the oracle's tensor, float64
    """
    __tracebackhide__ = True
    missing = torch.ones(whole.shape, dtype=torch.bool)
    first_holder: dict[object, tuple[int, Tensor]] = {}
    for rank, mine in enumerate(pieces):
        where = f"rank {rank} of {len(pieces)}"
        for piece in mine:
            place = tuple(slice(a, b) for a, b in piece.index)
            missing[place] = False
            if bound is None:
                assert_exact(piece.local, whole[place].to(dtype), where=where, what=what)
            else:
                assert_within(piece.local, whole[place], bound=bound, where=where, what=what)
            holder, copy = first_holder.setdefault(piece.index, (rank, piece.local))
            assert_exact(piece.local, copy, where=where, what=f"{what}, compared with rank {holder}")
    if bool(missing.any()):
        first = [int(i) for i in missing.nonzero()[0]]
        raise AssertionError(
            f"all {len(pieces)} ranks: {what}: {int(missing.sum())} of {missing.numel()} elements"
            f" are on no rank; first at {first}"
        )


def judge(
    outcomes: Sequence[Sequence[Outcome]],
    cases: Sequence[Case],
    parts: Sequence[str] = ("output", "gradients"),
) -> list[str]:
    """Compare outcomes[rank][case] with the unsplit layers, part by part. Returns the names of refused cases."""
    __tracebackhide__ = True
    refused = []
    for case, by_rank in zip(cases, zip(*outcomes, strict=True), strict=True):
        if not answered(by_rank, case.name, may_refuse=case_may_refuse(case)):
            refused.append(case.name)
            continue
        answer = unsplit(case)
        for part in parts:
            {"output": assert_output, "gradients": assert_gradients}[part](by_rank, case, answer)
    return refused


def assert_resident_bytes(outcomes: Sequence[Outcome], case: Case, expected: int) -> None:
    """Bytes of the storages that hold each rank's parameters."""
    __tracebackhide__ = True
    for rank, outcome in enumerate(outcomes):
        if outcome.resident_bytes != expected:
            raise AssertionError(
                f"rank {rank} of {len(outcomes)}: {case.name}: {outcome.resident_bytes} parameter bytes alive,"
                f" expected {expected}"
            )


def assert_norm(observed: Sequence[float | None], expected: float, what: str) -> None:
    """The same number on every rank, within the rounding of a sum of squares."""
    __tracebackhide__ = True
    for rank, value in enumerate(observed):
        if value is None or not abs(value - expected) <= NORM_RELATIVE * expected or value != observed[0]:
            raise AssertionError(
                f"rank {rank} of {len(observed)}: {what}: gradient norm {value}, expected {expected}"
            )


def assert_output(outcomes: Sequence[Outcome], case: Case, answer: Answer) -> None:
    """The ranks hold the whole layer's output."""
    __tracebackhide__ = True
    norm, ranks = float(answer.output.norm()), len(outcomes)
    bound = rounding_bound(case.torch_dtype, ranks, answer.reduction_length, norm, norm)
    pieces = [[o.output] if o.output else [] for o in outcomes]
    assert_pieces(
        pieces,
        answer.output,
        dtype=case.torch_dtype,
        what=f"{case.name}: output",
        bound=None if case.integers else bound,
    )
    if case.kind in ("row", "mlp", "embedding") or case.options.get("gather_output"):
        assert_whole_everywhere(outcomes, case, answer)


def assert_whole_everywhere(outcomes: Sequence[Outcome], case: Case, answer: Answer) -> None:
    """What is to be gathered, or summed over ranks, is the whole output on every rank, not a part of it."""
    __tracebackhide__ = True
    for rank, outcome in enumerate(outcomes):
        shape = None if outcome.output is None else tuple(outcome.output.local.shape)
        if shape != tuple(answer.output.shape):
            raise AssertionError(
                f"rank {rank} of {len(outcomes)}: {case.name}: output of shape {shape},"
                f" expected the whole, {tuple(answer.output.shape)}"
            )


def assert_gradients(outcomes: Sequence[Outcome], case: Case, answer: Answer) -> None:
    """The ranks hold the whole layer's gradients, tensor by tensor: input, weights, biases."""
    __tracebackhide__ = True
    total = answer.gradient_norm
    tensors = {name: [o.gradients.get(name, []) for o in outcomes] for name in answer.gradients}
    wholes = dict(answer.gradients)
    if answer.input_gradient is not None:
        tensors["input"] = [[o.input_gradient] if o.input_gradient else [] for o in outcomes]
        wholes["input"] = answer.input_gradient
        total = max(total, float(answer.input_gradient.norm()))
    for name, whole in wholes.items():
        norm = max(float(whole.norm()), answer.absolute_norms.get(name, 0.0))
        bound = rounding_bound(case.torch_dtype, len(outcomes), answer.reduction_length, norm, total)
        assert_pieces(
            tensors[name],
            whole,
            dtype=case.torch_dtype,
            what=f"{case.name}: gradient of {name}",
            bound=None if case.integers else bound,
        )


def assert_plans(found: Sequence[Sequence[object]], golden: Mapping[tuple[int, int, int], object]) -> None:
    """found[rank]: a head plan, or the text of a refusal, for each (q heads, kv heads, ranks) of the table."""
    __tracebackhide__ = True
    for rank, plans in enumerate(found):
        for (asked, expected), observed in zip(golden.items(), plans, strict=True):
            shown = dataclasses.astuple(observed) if isinstance(observed, HeadPlan) else None
            if shown != expected:
                raise AssertionError(
                    f"rank {rank} of {len(found)}: plan {asked}: observed {shown}, expected {expected}"
                )
