"""Checks of the pipeline experiment: what a step sent to whom, in all and message by message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from parproof.checks.ledger import assert_ledger
from parproof.checks.pipeline import places, ranks_of_one
from parproof.cost.pipeline import FORWARD, WEIGHT, Crossing, Event, boundary_gathers, in_all, traffic_by_peer
from parproof.cost.traffic import Traffic
from parproof.ledger.rows import Row
from parproof.ranks.run import Run

if TYPE_CHECKING:
    from parproof.subjects.pipeline_protocol import Boundary
    from parproof.workloads.pipeline import Leaving
    from parproof.workloads.pipeline_cases import Training


def crossings(case: Training, world: int) -> list[list[Crossing]]:
    """[micro-batch][stage]: what leaves a stage, from the workload's own account of its tensors."""
    from parproof.workloads import pipeline as models

    leaving = models.net(case.kind, len(places(case, world))).leaving
    return [[_crossing(tensors, rows) for tensors in leaving] for rows in case.cut]


def _crossing(leaving: Sequence[Leaving], rows: int) -> Crossing:
    from parproof.workloads import pipeline as models

    sizes = [
        (models.num_bytes((rows, *shape[1:]), dtype), differentiable)
        for shape, dtype, differentiable in leaving
    ]
    back = [size for size, differentiable in sizes if differentiable]
    return Crossing(len(sizes), sum(size for size, _ in sizes), len(back), sum(back))


def assert_traffic(run: Run, case: Training, setup: Sequence[Boundary]) -> list[Traffic]:
    """Sends and receives of every step, peer by peer, and nothing else; returns what was predicted for rank 0."""
    first: list[Traffic] = []
    for rank, rows in enumerate(run.ledgers):
        predicted = _traffic(run, case, rank, setup)
        gathers = _gathers(run, case, rank)
        first = first or [*(line for lines in predicted.values() for line in lines), *gathers]
        seen = [row for row in rows if not row.control]
        for peer in sorted(set(predicted) | {row.peer for row in seen if row.peer is not None}):
            mine = [row for row in seen if row.peer == peer]
            assert_ledger(mine, predicted.get(peer, []), where=f"{run.where(rank)}: with rank {peer}")
        assert_ledger([row for row in seen if row.peer is None], gathers, where=run.where(rank))
    return first


def _traffic(run: Run, case: Training, rank: int, setup: Sequence[Boundary]) -> dict[int, list[Traffic]]:
    """Predicted lines of all steps of a rank, by peer; what is exchanged once is in the first step."""
    from parproof.workloads import pipeline as models

    once = [models.num_bytes(tensor.shape, tensor.dtype) for tensor in setup]
    found: dict[int, list[Traffic]] = {}
    p = ranks_of_one(case, run.world_size)
    for step in range(case.steps):
        lines = traffic_by_peer(
            [place + rank // p * p for place in places(case, run.world_size)],
            rank,
            [c.part(case.tensor_ranks) for c in in_all(crossings(case, run.world_size))],
            phase=f"step{step}",
            setup_bytes=once if step == 0 else (),
        )
        for peer, made in lines.items():
            found.setdefault(peer, []).extend(made)
    return found


def _gathers(run: Run, case: Training, rank: int) -> list[Traffic]:
    """What a rank gathers from its tensor group in all steps."""
    p = ranks_of_one(case, run.world_size)
    lines = [
        boundary_gathers(
            places(case, run.world_size),
            rank % p,
            in_all(crossings(case, run.world_size)),
            case.tensor_ranks,
            phase=f"step{step}",
        )
        for step in range(case.steps)
    ]
    return [line for line in lines if line.calls]


def last_step(rows: Sequence[Row], case: Training) -> list[Row]:
    """The calls of the last step, whose log is kept."""
    return [row for row in rows if row.phase.split("/")[0] == f"step{case.steps - 1}"]


def messages(
    event: Event, placed: Sequence[int], made: Sequence[Sequence[Crossing]], *, arriving: bool
) -> Iterator[tuple[int, int, int]]:
    """(place of the other rank, tensors, bytes) of what an event waits for, or gives; nothing within a rank."""
    if event.kind == WEIGHT:
        return
    step = 1 if (event.kind == FORWARD) != arriving else -1
    other = event.stage + step
    if 0 <= other < len(placed) and placed[other] != placed[event.stage]:
        crossing = made[event.micro][min(other, event.stage)]
        is_output = event.kind == FORWARD
        yield (
            placed[other],
            crossing.num_outputs if is_output else crossing.num_gradients,
            crossing.output_bytes if is_output else crossing.gradient_bytes,
        )


def assert_message_sizes(
    run: Run, case: Training, observed: Sequence[Sequence[Event]]
) -> list[tuple[str, int]]:
    """Message by message of the last step: each has the bytes of the micro-batch that the observed order puts there.

    Sums hide a batch cut into other parts, and micro-batches that overtake each other.
    Returns (event, bytes) of what rank 0 sent, neighbour by neighbour.
    """
    first: list[tuple[str, int]] = []
    for rank, rows in enumerate(run.ledgers):
        step = [row for row in last_step(rows, case) if row.op in ("send", "recv")]
        for peer in sorted({row.peer for row in step if row.peer is not None}):
            for op, source, target in (("send", rank, peer), ("recv", peer, rank)):
                sizes = iter(
                    [row.in_bytes + row.out_bytes for row in step if (row.op, row.peer) == (op, peer)]
                )
                for event, count, num_bytes in _sent(run, case, observed[source], target):
                    found = sum(next(sizes, 0) for _ in range(count))
                    if found != num_bytes:
                        raise AssertionError(
                            f"{run.where(rank)}: message sizes: {op} of {event} with rank {peer}:"
                            f" {found} B, expected {num_bytes} B"
                        )
                    first += [(str(event), found)] if source == rank == 0 else []
    return first


def _sent(run: Run, case: Training, order: Sequence[Event], target: int) -> Iterator[tuple[Event, int, int]]:
    """(event, tensors, bytes) that a rank with this order sends to `target`, in order."""
    placed, made = places(case, run.world_size), crossings(case, run.world_size)
    for event in order:
        for place, count, num_bytes in messages(event, placed, made, arriving=False):
            if place == target % ranks_of_one(case, run.world_size):
                yield event, count, num_bytes // case.tensor_ranks
