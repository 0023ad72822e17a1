"""Attention over a split sequence: output and gradients of every rank against the oracle at the rank's positions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parproof import oracles
from parproof.checks.bounds import cancellation_bound
from parproof.checks.ledger import assert_ledger
from parproof.checks.values import assert_exact, assert_within
from parproof.cost import context as cost
from parproof.cost.traffic import Traffic
from parproof.ranks.run import Run
from parproof.subjects.context_protocol import ContextPlan

if TYPE_CHECKING:
    from torch import Tensor

Answer = tuple[Mapping[str, "Tensor"], Mapping[str, "Tensor"], float]
"""Results, the same sums over absolute values, and the condition of the scores: see docs/numerics.md."""
LOCAL = ("out", "dq", "dk", "dv")


def assert_attention(
    run: Run,
    results: Sequence[Mapping[str, Any]],
    plan: ContextPlan,
    answers: Sequence[Answer],
    eps: float,
) -> float:
    """Returns the worst error as a share of its bound. Positions behind the oracle's last one are padding.

    answers   one for each group: of g groups, rank r is in group r mod g
    """
    __tracebackhide__ = True
    worst, groups = 0.0, len(answers)
    for name, (rank, found) in itertools.product(LOCAL, enumerate(results)):
        exact, absolute, condition = answers[rank % groups]
        length = exact["out"].shape[2]
        what = {"out": "output"}.get(name, name)
        assert found[name] is not None, f"{run.where(rank)}: {what}: no gradient arrived"
        places = [i for i, position in enumerate(found["positions"]) if position < length]
        at = [found["positions"][i] for i in places]
        bound = cancellation_bound(
            eps,
            absolute_norm=float(absolute[name][:, :, at].norm()),
            ranks=run.world_size // groups,
            length=plan.sequence_length,
            condition=condition,
        )
        observed, expected = found[name][:, :, places], exact[name][:, :, at]
        error = assert_within(observed, expected, bound=bound, where=run.where(rank), what=what)
        worst = max(worst, error / bound) if bound else worst
        padding = [i for i in range(len(found["positions"])) if i not in places]
        if name != "out" and found[name][:, :, padding].any():
            raise AssertionError(f"{run.where(rank)}: {what}: a gradient at positions of padding")
    return worst


def assert_shared(
    run: Run, results: Sequence[Mapping[str, Tensor]], answers: Sequence[Answer], eps: float, length: int
) -> float:
    """Gradients of what all ranks of a group hold: over all calls, the same bits everywhere. The worst, as above.

    length   terms of the longest sum: elements of the output, in all calls
    """
    __tracebackhide__ = True
    worst, groups = 0.0, len(answers)
    for name, (rank, found) in itertools.product(sorted(answers[0][0]), enumerate(results)):
        exact, absolute, condition = answers[rank % groups]
        bound = cancellation_bound(
            eps,
            absolute_norm=float(absolute[name].norm()),
            ranks=run.world_size // groups,
            length=length,
            condition=condition,
        )
        where, what = run.where(rank), f"gradient of {name}"
        error = assert_within(found[name], exact[name], bound=bound, where=where, what=what)
        first = rank % groups
        assert_exact(found[name], results[first][name], where=where, what=f"{what} here and on rank {first}")
        worst = max(worst, error / bound)
    return worst


def assert_exchanged(
    run: Run,
    algorithm: str,
    whole: Sequence[Tensor],
    shared: Mapping[str, Tensor] | None = None,
    groups: int = 1,
    calls: int = 1,
) -> list[Traffic]:
    """Every rank's ledger is what the formula says of the case, phase by phase; returns the prediction for rank 0.

    shared   of a layer that is called `calls` times, in phases «call0/forward» and so on
    groups   of g groups, rank r exchanges with the ranks that r mod g is the same for, and with no others
    """
    __tracebackhide__ = True
    p = run.world_size // groups
    q_bytes, kv_bytes = (t.numel() * t.element_size() // p for t in whole[:2])
    widened = max(whole[0].element_size(), 4) // whole[0].element_size()
    predicted = cost.traffic(
        algorithm,
        kv_bytes=kv_bytes,
        q_bytes=q_bytes,
        accumulator_kv_bytes=kv_bytes * widened,
        world_size=p,
    )
    if shared:
        predicted = [replace(line, phase=f"call{n}/{line.phase}") for n in range(calls) for line in predicted]
        predicted += cost.shared_traffic([t.numel() * t.element_size() for t in shared.values()], p)
    of_ranks = [
        [replace(line, members=tuple(range(rank % groups, run.world_size, groups))) for line in predicted]
        if groups > 1
        else predicted
        for rank in range(run.world_size)
    ]
    for rank, rows in enumerate(run.ledgers):
        assert_ledger(rows, of_ranks[rank], where=run.where(rank))
    return of_ranks[0]


def assert_layout(held: Sequence[Sequence[int]], plan: ContextPlan) -> list[int]:
    """Every position once; equal causal work where a layout is for that; the holders it names. Returns the work."""
    __tracebackhide__ = True
    length, documents, world = plan.sequence_length, plan.document_lengths, len(held)
    assert sorted(itertools.chain(*held)) == list(range(length)), f"positions held: {held}"
    work = [
        oracles.context.visible_pairs(list(positions), causal=True, length=length, document_lengths=documents)
        for positions in held
    ]
    if plan.balance == "document_zigzag" or (plan.balance == "zigzag" and not documents):
        assert len(set(work)) == 1, f"causal work per rank: {work}"
    for rank, positions in enumerate(held):
        owners = [
            oracles.context.holder(
                i, balance=plan.balance, length=length, world_size=world, document_lengths=documents
            )
            for i in positions
        ]
        assert owners == [rank] * len(positions), (
            f"rank {rank} of {world}: {plan.balance} gives its positions to {owners}"
        )
    return work


def assert_refused(run: Run, text: str) -> None:
    """Every rank says InvalidPlan with this text (a regular expression), and has sent nothing."""
    __tracebackhide__ = True
    for rank, answer in enumerate(run.results):
        assert answer.startswith("InvalidPlan"), f"{run.where(rank)}: {text}: {answer}"
        assert re.search(text, answer), f"{run.where(rank)}: {answer}"
        assert run.ledgers[rank] == (), f"{run.where(rank)}: sent something before it refused"
