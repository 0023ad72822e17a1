"""Times of collectives: read only where the values are right, told with bandwidths, and with a model if one fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parproof.checks.values import assert_exact
from parproof.cost.collectives import algorithm_GBps, bus_GBps, size_bytes
from parproof.cost.fit import ModelRefused, fit_alpha_beta
from parproof.cost.statistics import Summary, summarise
from parproof.ranks.run import Run

if TYPE_CHECKING:
    from torch import Tensor

ELEMENT_BYTES = 4


@dataclass(frozen=True)
class Point:
    """One payload: S in bytes, and what was measured."""

    size: int
    samples_s: tuple[tuple[float, ...], ...]
    summary: Summary


def assert_values(run: Run, op: str, counts: Sequence[int]) -> None:
    """Both results of every payload, before and after the timed calls, on every rank."""
    __tracebackhide__ = True
    for rank, (_, packed) in enumerate(run.results):
        tensors = iter(packed.tensors())
        for count in counts:
            for slot, moment in enumerate(("before", "after")):
                expected = _answer(op, run.world_size, rank, count, slot)
                what = f"{op} of {count} elements {moment} the timed calls"
                assert_exact(next(tensors), expected, where=run.where(rank), what=what)


def _answer(op: str, p: int, rank: int, count: int, slot: int) -> Tensor:
    import torch

    from parproof.oracles.collectives import reduced
    from parproof.workloads.collectives import coded

    whole = count * p if op in ("reduce_scatter_single", "all_to_all_single") else count
    xs = [coded(r, slot, (whole,), "float32", "sum") for r in range(p)]
    mine = slice(rank * count, (rank + 1) * count)
    if op == "all_gather_single":
        return torch.cat(xs)
    if op == "all_to_all_single":
        return torch.cat([x[mine] for x in xs])
    return reduced(xs, "sum") if op == "all_reduce" else reduced([x[mine] for x in xs], "sum")


def points(run: Run, op: str, counts: Sequence[int]) -> list[Point]:
    """Samples of all ranks, summarised by the per-call maximum over ranks."""
    found = []
    for k, count in enumerate(counts):
        samples = tuple(tuple(of_rank[k]) for of_rank, _ in run.results)
        size = size_bytes(op.removesuffix("_single"), count, ELEMENT_BYTES, run.world_size)
        found.append(Point(size, samples, summarise(samples)))
    return found


def described(op: str, p: int, measured: Sequence[Point]) -> dict[str, Any]:
    """Median, P95, bandwidths per payload, and the fitted model or the reason why there is none.

    Whether much takes longer than little is told, not judged: on shared cores a neighbour can delay every call.
    """
    name = op.removesuffix("_single")
    rows = [
        {
            "size_bytes": point.size,
            "median_s": point.summary.median_s,
            "p95_s": point.summary.p95_s,
            "max_s": max(max(of_rank) for of_rank in point.samples_s),
            "algorithm_GBps": algorithm_GBps(point.size, point.summary.median_s),
            "bus_GBps": bus_GBps(name, p, point.size, point.summary.median_s),
        }
        for point in measured
    ]
    facts: dict[str, Any] = {
        "payloads": rows,
        "largest_is_slower": measured[-1].summary.min_s > measured[0].summary.min_s,
    }
    try:
        model = fit_alpha_beta(name, p, [(point.size, point.summary.median_s) for point in measured])
    except ModelRefused as refused:
        return facts | {"model": None, "model_refused": str(refused)}
    found = {
        "alpha_s": model.alpha_s,
        "bytes_per_s": model.bytes_per_s,
        "relative_residual": model.relative_residual,
    }
    return facts | {"model": found, "model_refused": None}
