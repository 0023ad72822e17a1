"""Checks of an expert layer against the oracle, and of its traffic against the routes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from parproof.checks.bounds import reassociation_bound
from parproof.checks.provided import provided as provided_of
from parproof.checks.tensor import assert_pieces
from parproof.checks.values import assert_exact, assert_within
from parproof.cost import expert as cost
from parproof.cost.traffic import Traffic
from parproof.ledger.rows import Row
from parproof.oracles.expert import Answer
from parproof.programs.expert import Outcome
from parproof.programs.expert_times import Called
from parproof.ranks.run import Run
from parproof.subjects.expert_protocol import Account, Exchange, ExpertParallel
from parproof.subjects.protocol import SubjectRef
from parproof.workloads.expert import HIDDEN, Case
from parproof.workloads.expert_meshes import Mesh

EPS = {"float64": 2.0**-52, "float32": 2.0**-23}


def provided(subject: SubjectRef, pairs: Sequence[tuple[Case, Any]]) -> list[tuple[Case, Any]]:
    """The cases with what goes with them; see checks.provided."""
    return provided_of(subject, pairs, lambda pair: needs(pair[0]))


def needs(case: Case) -> tuple[str, ...]:
    """Capabilities that a case takes."""
    over_tp = ("expert.tp",) if case.mesh.tp > 1 else ()
    return (f"expert.{case.plan.dispatcher}", *over_tp, *case.needs)


def _bounds(case: Case, tensors: Mapping[str, Tensor], dtype: str) -> dict[str, float | None]:
    """None (bit for bit) on integers in float64 with a linear gate; else the bound of docs/numerics.md."""
    if case.plan.gate == "linear" and dtype == "float64":
        return dict.fromkeys(tensors)
    norms = {name: float(t.norm()) for name, t in tensors.items()}
    routes = sum(len(s.x) for s in case.shards) * case.plan.top_k
    length = max(routes, HIDDEN, case.params["router"].shape[1])
    total = math.hypot(*norms.values())
    return {
        name: reassociation_bound(
            EPS[dtype], norm=norm, all_norm=total, ranks=len(case.shards), length=length
        )
        for name, norm in norms.items()
    }


def _assert_close(observed: Tensor, expected: Tensor, bound: float | None, where: str, what: str) -> None:
    __tracebackhide__ = True
    if bound is None:
        assert_exact(observed, expected.to(observed.dtype), where=where, what=what)
    else:
        assert_within(observed, expected, bound=bound, where=where, what=what)


def assert_values(outcomes: Sequence[Outcome], case: Case, answer: Answer, dtype: str = "float64") -> None:
    """Routes, outputs, gradients; and the loss, where it is exact."""
    __tracebackhide__ = True
    assert_routing(outcomes, case, answer)
    assert_outputs(outcomes, case, answer, dtype)
    assert_gradients(outcomes, case, answer, dtype)
    if case.plan.gate == "linear":
        assert_loss(outcomes, case, answer)


def assert_outputs(outcomes: Sequence[Outcome], case: Case, answer: Answer, dtype: str = "float64") -> None:
    """Every token has the weighted sum of its experts' answers; what was dropped or padded adds nothing."""
    __tracebackhide__ = True
    bounds = _bounds(case, {"output": torch.cat(answer.outputs)}, dtype)
    for rank, outcome in enumerate(outcomes):
        where = f"rank {rank} of {len(outcomes)}"
        expected = answer.outputs[case.mesh.shard(rank)]
        _assert_close(outcome.output, expected, bounds["output"], where, f"{case.name}: output")


def assert_gradients(outcomes: Sequence[Outcome], case: Case, answer: Answer, dtype: str = "float64") -> None:
    """Router, experts and inputs; every expert's gradient is somewhere, and copies are equal bit for bit."""
    __tracebackhide__ = True
    bounds = _bounds(case, {"input": torch.cat(answer.input_gradients), **answer.gradients}, dtype)
    for name, whole in answer.gradients.items():
        pieces = [o.gradients.get(name, []) for o in outcomes]
        what = f"{case.name}: gradient of {name}"
        assert_pieces(pieces, whole, dtype=getattr(torch, dtype), what=what, bound=bounds[name])
    if case.frozen_input:
        return
    for rank, outcome in enumerate(outcomes):
        where = f"rank {rank} of {len(outcomes)}"
        what = f"{case.name}: gradient of input"
        if outcome.input_gradient is None:
            raise AssertionError(f"{where}: {what}: none arrived")
        expected = answer.input_gradients[case.mesh.shard(rank)]
        _assert_close(outcome.input_gradient, expected, bounds["input"], where, what)


def assert_routing(outcomes: Sequence[Outcome], case: Case, answer: Answer) -> None:
    """Experts in order of preference, and the same routes kept and dropped."""
    __tracebackhide__ = True
    for rank, outcome in enumerate(outcomes):
        where, shard = f"rank {rank} of {len(outcomes)}", case.mesh.shard(rank)
        assert_exact(outcome.routing.ids, answer.ids[shard], where=where, what=f"{case.name}: expert ids")
        kept = outcome.routing.kept, answer.kept_routes[shard]
        if not torch.equal(*kept):
            token, slot = (int(i) for i in (kept[0] != kept[1]).nonzero()[0])
            words = "kept" if bool(kept[0][token, slot]) else "dropped"
            raise AssertionError(
                f"{where}: {case.name}: token {token} is {words} at its choice {slot},"
                f" expert {int(answer.ids[shard][token, slot])};"
                f" {int(kept[0].sum())} routes kept here, expected {int(kept[1].sum())}"
                f" with {answer.capacity[shard]} places at each expert"
            )


def assert_loss(outcomes: Sequence[Outcome], case: Case, answer: Answer) -> None:
    """The same scalar on all ranks."""
    __tracebackhide__ = True
    for rank, outcome in enumerate(outcomes):
        if outcome.loss != answer.loss:
            raise AssertionError(
                f"rank {rank} of {len(outcomes)}: {case.name}: loss is {outcome.loss!r}, expected {answer.loss!r}"
                f" ({case.plan.normalisation} normalisation)"
            )


def sizes(case: Case, answer: Answer, rank: int) -> cost.Sizes:
    """What the cost model needs, read off the oracle's decisions."""
    mesh, plan = case.mesh, case.plan
    d, e, _ = mesh.place(rank)
    group = [d * mesh.ep + other for other in range(mesh.ep)]
    share = plan.num_experts // mesh.ep
    return cost.Sizes(
        kept=[answer.kept[s] for s in group],
        owners=plan.placement or [expert // share for expert in range(plan.num_experts)],
        lengths=[len(case.shards[s].x) for s in group],
        places=max(answer.capacity[s] for s in group),
        me=e,
        width=case.params["router"].shape[1],
        hidden=HIDDEN,
        top_k=plan.top_k,
        element_bytes=8,
        ep=mesh.ep,
        dp=mesh.dp,
        tp=mesh.tp,
        input_gradient=not case.frozen_input,
    )


def predicted(case: Case, answer: Answer, rank: int, exchange: Exchange) -> list[Traffic]:
    """The traffic of one case on one rank, by phase of the program, with the ranks that take part in it."""
    lines = cost.traffic(sizes(case, answer, rank), counts=exchange.counts, dispatcher=exchange.rows)
    return [
        replace(line, phase=f"{case.name}/{line.phase}", members=_members(line, case.mesh, rank))
        for line in lines
    ]


def _members(line: Traffic, mesh: Mesh, rank: int) -> tuple[int, ...]:
    """Ranks along the axis that a line of the cost model goes over; tp copies hold equal rows, so values cannot tell."""
    if line.op != "all_reduce":
        along = "det" if line.group_size == mesh.world else "e"
    elif line.phase in ("forward", "backward"):
        along = "t"
    else:
        along = "de" if line.group_size == mesh.dp * mesh.ep else "d"
    kept = [i for i, axis in enumerate("det") if axis not in along]
    mine = mesh.place(rank)
    return tuple(r for r in range(mesh.world) if all(mesh.place(r)[i] == mine[i] for i in kept))


def assert_conservation(ledgers: Sequence[Sequence[Row]], case: Case, answer: Answer) -> None:
    """What s hands in for d is what d expects of s; combine is the transpose of dispatch, gradients go back so.

    The exchanges of a step: dispatch, combine, and their gradients; frozen inputs need no gradient of dispatch.
    """
    __tracebackhide__ = True
    world = len(ledgers)
    calls = {rank: _exchanges(rows, case.name) for rank, rows in enumerate(ledgers)}
    names = ("dispatch", "combine", "gradient of combine", "gradient of dispatch")[: 4 - case.frozen_input]
    for rank, mine in calls.items():
        if len(mine) != len(names):
            raise AssertionError(
                f"rank {rank} of {world}: {case.name}: {len(mine)} all_to_all calls of rows, expected {len(names)}"
            )
        sent, received = cost.dispatch_parts(sizes(case, answer, rank), case.plan.dispatcher)
        for index, row in enumerate(mine):
            wanted = (sent, received) if index % 2 == 0 else (received, sent)
            if (list(row.in_parts), list(row.out_parts)) != wanted:
                raise AssertionError(
                    f"rank {rank} of {world}: {case.name}: {names[index]} hands in {list(row.in_parts)} bytes"
                    f" and expects {list(row.out_parts)}, routes say {wanted[0]} and {wanted[1]}"
                )
        for place, other in enumerate(mine[0].members):
            for index, row in enumerate(mine):
                theirs = calls[other][index].out_parts[row.members.index(rank)]
                if row.in_parts[place] != theirs:
                    raise AssertionError(
                        f"rank {rank} of {world}: {case.name}: {names[index]}: {row.in_parts[place]} bytes for"
                        f" rank {other}, which expects {theirs}"
                    )


def dispatched_bytes(ledgers: Sequence[Sequence[Row]], case: Case) -> tuple[int, int]:
    """(bytes that left a rank, bytes handed in) at the dispatch of a case, over all ranks."""
    left = handed_in = 0
    for rank, rows in enumerate(ledgers):
        row = _exchanges(rows, case.name)[0]
        handed_in += row.in_bytes
        left += row.in_bytes - row.in_parts[row.members.index(rank)]
    return left, handed_in


def assert_network_bytes(
    ledgers: Sequence[Sequence[Row]], case: Case, answer: Answer, figures: ExpertParallel
) -> Account:
    """An account of the oracle's routes tells the bytes that the ledger saw leave, and those handed in; returns it."""
    __tracebackhide__ = True
    sized = sizes(case, answer, 0)
    routes = [[[e for e in token if e >= 0] for token in ids.tolist()] for ids in answer.ids]
    account = figures.account(case.plan, routes, sized.owners, width=sized.width, element_bytes=8)
    left, handed_in = dispatched_bytes(ledgers, case)
    assert account.network_bytes == left, f"{case.name}: network bytes {account.network_bytes}, {left} left"
    kept = account.effective_tokens * sized.width * 8
    assert kept == handed_in, f"{case.name}: {kept} bytes of kept routes, {handed_in} handed in"
    return account


def _exchanges(rows: Sequence[Row], case_name: str) -> list[Row]:
    """all_to_all calls of rows (counts are integers), in order."""
    return [
        r for r in rows if r.op == "all_to_all" and r.phase.startswith(f"{case_name}/") and r.dtype != "int64"
    ]


def assert_calls(results: Sequence[Sequence[Called]], pairs: Sequence[tuple[Case, Answer]]) -> None:
    """Every call of one layer gives what a new layer would: results[rank][case]."""
    __tracebackhide__ = True
    for rank, of_rank in enumerate(results):
        for (case, answer), called in zip(pairs, of_rank, strict=True):
            for number, output in enumerate(called.outputs):
                what = f"call {number} of {case.name}: output"
                expected = answer.outputs[case.mesh.shard(rank)]
                assert_exact(output, expected, where=f"rank {rank} of {len(results)}", what=what)


def assert_refused(run: Run, text: str, answers: Sequence[str]) -> None:
    """answers[rank]: all of them InvalidPlan with this text in it."""
    __tracebackhide__ = True
    for rank, answer in enumerate(answers):
        assert answer.startswith("InvalidPlan"), f"{run.where(rank)}: {text}: {answer}"
        assert text in answer, f"{run.where(rank)}: {text}: {answer}"
