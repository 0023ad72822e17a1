"""Judging training state that lies in pieces on many ranks: values, ownership, losses and norms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from parproof.checks.values import assert_exact, assert_within

if TYPE_CHECKING:
    from torch import Tensor

    from parproof.ledger.rows import Row
    from parproof.oracles.zero import Trajectory
    from parproof.ranks.run import Run

Pieces = Mapping[str, Sequence[tuple[int, "Tensor"]]]


def assert_pieces(
    by_rank: Sequence[Pieces],
    expected: Mapping[str, Tensor],
    *,
    what: str,
    bounds: Mapping[str, float] | float | None,
) -> None:
    """Every piece on every rank equals its part of the expected tensor; all ranks together hold all of it.

    bounds   per tensor or for all: absolute L2 bound of each piece; None: bit for bit, in the same dtype
    """
    __tracebackhide__ = True
    for rank, pieces in enumerate(by_rank):
        where = f"rank {rank} of {len(by_rank)}"
        surplus = sorted(set(pieces) - set(expected))
        if surplus:
            raise AssertionError(f"{where}: {what} of {', '.join(surplus)} exist; the baseline has none")
        for name, parts in pieces.items():
            whole = expected[name].reshape(-1)
            for start, part in parts:
                label = f"{what} of {name}[{start}:{start + part.numel()}]"
                wanted = whole[start : start + part.numel()]
                if bounds is None:
                    assert_exact(part, wanted, where=where, what=label)
                else:
                    limit = bounds if isinstance(bounds, float) else bounds[name]
                    assert_within(part, wanted, bound=limit, where=where, what=label)
    for name, tensor in expected.items():
        covered = _coverage([p.get(name, ()) for p in by_rank], tensor.numel())
        if 0 in covered:
            raise AssertionError(
                f"all {len(by_rank)} ranks: {what} of {name}: element {covered.index(0)} is held by no rank"
            )


def assert_owned(by_rank: Sequence[Pieces], sizes: Mapping[str, int], *, what: str, copies: int) -> None:
    """Every element of every parameter is held exactly `copies` times, and never twice on one rank."""
    __tracebackhide__ = True
    world = len(by_rank)
    for rank, pieces in enumerate(by_rank):
        where = f"rank {rank} of {world}"
        for name, parts in pieces.items():
            if name not in sizes:
                raise AssertionError(f"{where}: {what} of {name} exist; the model has no such parameter")
            for start, part in parts:
                if start < 0 or start + part.numel() > sizes[name]:
                    raise AssertionError(
                        f"{where}: {what} of {name}: the piece [{start}:{start + part.numel()}] lies outside"
                        f" of its {sizes[name]} elements"
                    )
            mine = _coverage([parts], sizes[name])
            twice = next((i for i, count in enumerate(mine) if count > 1), None)
            if twice is not None:
                raise AssertionError(f"{where}: {what} of {name}: element {twice} is held twice here")
    for name, numel in sizes.items():
        counts = _coverage([pieces.get(name, ()) for pieces in by_rank], numel)
        wrong = [i for i, count in enumerate(counts) if count != copies]
        if wrong:
            holders = [r for r, p in enumerate(by_rank) if _coverage([p.get(name, ())], numel)[wrong[0]]]
            raise AssertionError(
                f"rank {holders[0] if holders else 0} of {world}: {what} of {name}: {len(wrong)} of {numel}"
                f" elements have a wrong number of owners; element {wrong[0]} is held by ranks {holders},"
                f" expected {copies} owner(s)"
            )


def _coverage(per_rank: Sequence[Sequence[tuple[int, Tensor]]], numel: int) -> list[int]:
    counts = [0] * numel
    for parts in per_rank:
        for start, part in parts:
            for i in range(start, start + part.numel()):
                counts[i] += 1
    return counts


def assert_loss(
    results: Sequence[Mapping[str, Any]], window: int, truth: Trajectory, *, bound: float
) -> None:
    """The mean over ranks and micro-batches of a window's local losses is the loss of the whole batch."""
    __tracebackhide__ = True
    wanted, local = truth.losses[window], []
    for result in results:
        per_window = len(result["losses"]) // len(truth.losses)
        local += result["losses"][window * per_window : (window + 1) * per_window]
    mean = sum(local) / len(local)
    if not abs(mean - wanted) <= bound:
        raise AssertionError(
            f"all {len(results)} ranks: loss of window {window} is {mean!r},"
            f" expected {wanted!r} within {bound:.3e}"
        )


def assert_norm(results: Sequence[Mapping[str, Any]], window: int, wanted: float, *, bound: float) -> None:
    """Every rank reports the single process's gradient norm."""
    __tracebackhide__ = True
    for rank, result in enumerate(results):
        norm = result["norms"][window]
        if not abs(norm - wanted) <= bound:
            raise AssertionError(
                f"rank {rank} of {len(results)}: gradient norm of window {window} is {norm!r},"
                f" expected {wanted!r} within {bound:.3e}; ratio {norm / wanted:.6g}"
            )


def assert_steps(results: Sequence[Mapping[str, Any]], expected: Mapping[str, int]) -> None:
    """Each parameter with optimizer state has been updated as often as in the single process."""
    __tracebackhide__ = True
    for rank, result in enumerate(results):
        for name, count in result["steps"].items():
            if count != expected.get(name, 0):
                raise AssertionError(
                    f"rank {rank} of {len(results)}: {name} has made {count} optimizer steps,"
                    f" expected {expected.get(name, 0)}"
                )


def assert_bytes(observed: Mapping[str, int], expected: Mapping[str, int], *, where: str) -> None:
    """Resident bytes by object; what the subject holds beside them has to be nothing."""
    __tracebackhide__ = True
    wrong = [
        f"{kind} hold {observed.get(kind, 0)} bytes, expected {count}"
        for kind, count in {"other": 0, **expected}.items()
        if observed.get(kind, 0) != count
    ]
    if wrong:
        raise AssertionError(f"{where}: resident state differs from the formula: {'; '.join(wrong)}")


def rows_of(rows: Sequence[Row], inside: str) -> list[Row]:
    """Calls made in a phase, e.g. window2 or window2/micro0, with the last part of their phase.

    A message in a group of one goes nowhere; whether it is made at all is left to the subject.
    """
    return [
        replace(row, phase=row.phase.rsplit("/", 1)[-1])
        for row in rows
        if row.phase.startswith(inside + "/") and len(row.members) > 1
    ]


def assembled(by_rank: Sequence[Pieces], sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """Whole flat tensors from what the ranks hold; what no rank holds is NaN, names nobody holds are absent."""
    whole: dict[str, Tensor] = {}
    for pieces in by_rank:
        for name, parts in pieces.items():
            for start, part in parts:
                target = whole.setdefault(name, part.new_full((sizes[name],), float("nan")))
                target[start : start + part.numel()] = part
    return whole


def assert_mean(
    by_rank: Sequence[Pieces], expected: Mapping[str, Tensor], *, bounds: Mapping[str, float]
) -> None:
    """The mean over ranks of what each rank reports is the expected tensor."""
    __tracebackhide__ = True
    sizes = {name: tensor.numel() for name, tensor in expected.items()}
    wholes = [assembled([pieces], sizes) for pieces in by_rank]
    for name, tensor in expected.items():
        missing = [rank for rank, whole in enumerate(wholes) if name not in whole]
        if missing:
            raise AssertionError(f"rank {missing[0]} of {len(by_rank)}: nothing for {name}")
        total = wholes[0][name].double()
        for whole in wholes[1:]:
            total = total + whole[name].double()
        mean = total / len(wholes)
        where = f"all {len(by_rank)} ranks"
        assert_within(mean, tensor.reshape(-1), bound=bounds[name], where=where, what=f"mean of raw {name}")


def differ(one: Run, other: Run) -> bool:
    """Whether two runs differ in any bit of the last window's gradients."""
    for mine, theirs in zip(one.results, other.results, strict=True):
        for name, parts in mine["gradients"][-1].items():
            for (_, a), (_, b) in zip(parts, theirs["gradients"][-1][name], strict=True):
                if not bool((a == b).all()):
                    return True
    return False


def assert_says(failure: AssertionError, pattern: str) -> None:
    """A rank's own error names the matter; a crash, a mismatch found by us and a time-out do not."""
    __tracebackhide__ = True
    first = str(failure).split("\n", 1)[0]
    if not re.search(pattern, first, re.IGNORECASE):
        raise AssertionError(
            f"{first}; expected an error of the subject that matches {pattern!r}"
        ) from failure
