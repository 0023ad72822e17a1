"""Inputs of context parallelism with the oracle's answers: the same for every variant, layout, world and subject."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parproof import oracles, workloads
from parproof.checks.context import Answer, assert_attention, assert_shared
from parproof.ranks.run import Run
from parproof.subjects.context_protocol import ContextPlan
from parproof.workloads.context_plans import LENGTH, SHARINGS

if TYPE_CHECKING:
    from torch import Tensor

    from parproof.workloads.context import Turn

Whole = tuple["Tensor", "Tensor", "Tensor", "Tensor"]
"""q, k, v and the gradient of the output, of the whole sequence."""


@functools.cache
def plain(
    heads: int,
    kv_heads: int,
    length: int,
    dtype: str,
    magnitude: int,
    causal: bool,
    documents: tuple[int, ...],
    series: int = 0,
) -> tuple[Whole, Answer]:
    """(whole sequence, the oracle's answer); every series has values of its own."""
    import torch

    whole = workloads.context.tensors(
        heads=heads,
        kv_heads=kv_heads,
        length=length,
        dtype=getattr(torch, dtype),
        magnitude=magnitude,
        series=series,
    )
    exact, absolute = oracles.context.dense(*whole, causal=causal, document_lengths=documents)
    # exp turns a relative error of its argument into one that is larger by the argument.
    return whole, (exact, absolute, 1.0 + oracles.context.largest_score(whole[0], whole[1]))


@dataclass(frozen=True)
class Layer:
    """A layer of one group: what its ranks hold, what it is called with, and the oracle's answers.

    answers   one for each call, for the positions that are no padding
    in_all    of the calls together: gradients of what is shared add up
    """

    shared: dict[str, Tensor]
    calls: tuple[Whole, ...]
    answers: tuple[Answer, ...]
    in_all: Answer


CALLS = 2


@functools.cache
def shared(kind: str) -> tuple[Layer, ...]:
    """One layer for each group, none with the data of another, each called twice, on other data each time."""
    sharing, made = SHARINGS[kind], []
    for group in range(sharing.groups):
        sizes = {"heads": 8, "kv_heads": sharing.kv_heads}
        held = workloads.context.sharing(sharing, **sizes, series=group)
        calls = tuple(
            workloads.context.sharing_call(sharing, **sizes, series=CALLS * group + n) for n in range(CALLS)
        )
        answers = tuple(
            oracles.context_sharing.dense(
                *(t[:, :, : LENGTH - sharing.padding] for t in call), held, causal=sharing.causal
            )
            for call in calls
        )
        sums = ({name: sum(a[side][name] for a in answers) for name in held} for side in (0, 1))
        made.append(Layer(held, calls, answers, (*sums, max(a[2] for a in answers))))
    return tuple(made)


def turns(variant: str, documents: Sequence[tuple[int, ...]]) -> list[Turn]:
    """A causal plan for each packing, with data of its own."""
    return [
        workloads.context.Turn(
            ContextPlan(variant, "contiguous", True, LENGTH, packed),
            plain(4, 4, LENGTH, "float64", 1, True, packed, n)[0],
        )
        for n, packed in enumerate(documents)
    ]


def assert_turns(run: Run, turns: Sequence[Turn], eps: float) -> float:
    """What a run of attend_often gave, every call of it."""
    __tracebackhide__ = True
    worst = []
    for call, found in enumerate(zip(*(made for made, _ in run.results), strict=True)):
        n = call % len(turns)
        plan = turns[n].plan
        _, answer = plain(4, 4, LENGTH, "float64", 1, True, plan.document_lengths, n)
        worst.append(assert_attention(run, found, plan, [answer], eps))
    return max(worst)


def assert_layers(run: Run, plan: ContextPlan, layers: Sequence[Layer], eps: float) -> float:
    """What a run of attend_sharing gave against the answers, call by call, then the gradients of what is shared."""
    __tracebackhide__ = True
    of_ranks, gradients = zip(*run.results, strict=True)
    worst = [
        assert_attention(run, found, plan, [layer.answers[n] for layer in layers], eps)
        for n, found in enumerate(zip(*of_ranks, strict=True))
    ]
    elements = sum(answer[0]["out"].numel() for answer in layers[0].answers)
    return max(*worst, assert_shared(run, gradients, [layer.in_all for layer in layers], eps, elements))
