"""Collectives: sizes, bandwidth factors and alpha-beta times. Decimal units: 1 GB = 1e9 bytes, 1 µs = 1e-6 s.

The size S of a measurement is what one rank holds of the whole: for all_gather and gather the gathered result, for
reduce_scatter and scatter the whole that is cut up, for the others the buffer of a rank. Algorithm bandwidth is
S / t; bus bandwidth is what a link of a ring must carry, S / t times a factor, so that it can be compared with the
hardware's figure whatever the number of ranks. Derived in docs/costs.md.
"""

from __future__ import annotations

from fractions import Fraction

from parproof.errors import UsageError

GB = 10**9
GIB = 2**30

_OPERATIONS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send",
)
_OF_THE_WHOLE = ("all_gather", "reduce_scatter", "gather", "scatter", "all_to_all")


def size_bytes(op: str, elements_per_rank: int, element_bytes: int, group_size: int) -> int:
    """S of the standard measurement; `elements_per_rank` is what one rank contributes or keeps.

    all_to_all: the whole send buffer, with `elements_per_rank` for each of the group.
    """
    _check(op, group_size)
    if elements_per_rank < 0 or element_bytes < 1:
        raise UsageError(
            f"{elements_per_rank} elements of {element_bytes} bytes", expected="0 or more, 1 or more"
        )
    whole = group_size if op in _OF_THE_WHOLE else 1
    return elements_per_rank * element_bytes * whole


def bus_factor(op: str, group_size: int) -> Fraction:
    """Bus bandwidth over algorithm bandwidth.

    2(n−1)/n   all_reduce: every byte is reduced once and spread once
    (n−1)/n    all_gather, reduce_scatter, all_to_all, gather, scatter: the own part stays at home
    1          broadcast, reduce, send: every byte crosses the busiest link once
    """
    _check(op, group_size)
    if op == "all_reduce":
        return Fraction(2 * (group_size - 1), group_size)
    if op in _OF_THE_WHOLE:
        return Fraction(group_size - 1, group_size)
    return Fraction(1)


def algorithm_GBps(size: int, seconds: float) -> float:  # noqa: N802
    """S / t in decimal gigabytes a second."""
    if seconds <= 0 or size < 0:
        raise UsageError(f"{size} bytes in {seconds} s", expected="size ≥ 0 and a time above 0")
    return size / seconds / GB


def bus_GBps(op: str, group_size: int, size: int, seconds: float) -> float:  # noqa: N802
    """Algorithm bandwidth times the factor of the operation."""
    return algorithm_GBps(size, seconds) * float(bus_factor(op, group_size))


def startup_steps(op: str, group_size: int) -> int:
    """Steps of a ring, each of which pays the start-up time once (a tree for broadcast and reduce: depth)."""
    _check(op, group_size)
    if op == "all_reduce":
        return 2 * (group_size - 1)
    if op in ("broadcast", "reduce"):
        return (group_size - 1).bit_length()
    return 1 if op == "send" else group_size - 1


def ring_time_s(op: str, group_size: int, size: int, *, alpha_s: float, bytes_per_s: float) -> float:
    """alpha-beta time: start-up of every step, and the bytes a link carries, at its bandwidth.

    p = 8, S = 1 MiB, alpha = 5 µs, 100 GB/s: 70 µs + 18.35 µs = 88.35 µs for an all_reduce.
    """
    _check_link(alpha_s, bytes_per_s)
    if size < 0:
        raise UsageError(f"{size} bytes", expected="0 or more")
    if op in ("broadcast", "reduce"):
        # A tree without pipelining repeats the whole at every level.
        return startup_steps(op, group_size) * (alpha_s + size / bytes_per_s)
    carried = float(bus_factor(op, group_size)) * size
    return startup_steps(op, group_size) * alpha_s + carried / bytes_per_s


def crossover_bytes(op: str, group_size: int, *, alpha_s: float, bytes_per_s: float) -> float:
    """Size at which start-up and transfer take equally long: below, latency-bound; above, bandwidth-bound."""
    _check_link(alpha_s, bytes_per_s)
    if op in ("broadcast", "reduce"):
        return alpha_s * bytes_per_s
    if group_size == 1:
        return 0.0
    return startup_steps(op, group_size) * alpha_s * bytes_per_s / float(bus_factor(op, group_size))


def calls_time_s(num_calls: int, num_bytes: float, *, startup_s: float, bytes_per_s: float) -> float:
    """Simple model of the source document: every call pays a start-up, every byte its transfer."""
    _check_link(startup_s, bytes_per_s)
    if num_calls < 0 or num_bytes < 0:
        raise UsageError(f"{num_calls} calls of {num_bytes} bytes", expected="0 or more")
    return num_calls * (startup_s + num_bytes / bytes_per_s)


def _check(op: str, group_size: int) -> None:
    if op not in _OPERATIONS:
        raise UsageError(f"operation {op!r}", expected=", ".join(_OPERATIONS), where="cost.collectives")
    if group_size < 1:
        raise UsageError(f"group of {group_size}", expected="1 or more ranks", where="cost.collectives")


def _check_link(alpha_s: float, bytes_per_s: float) -> None:
    if alpha_s < 0 or bytes_per_s <= 0:
        raise UsageError(
            f"start-up {alpha_s} s, {bytes_per_s} bytes/s",
            expected="a start-up of 0 or more, a bandwidth above 0",
            where="cost.collectives",
        )
