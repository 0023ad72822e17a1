"""Sizes, factors and times of collectives against numbers worked out by hand; each wrong formula was once shipped."""

from fractions import Fraction

import pytest

from parproof.cost.collectives import (
    GB,
    GIB,
    algorithm_GBps,
    bus_factor,
    bus_GBps,
    calls_time_s,
    crossover_bytes,
    ring_time_s,
    size_bytes,
    startup_steps,
)
from parproof.errors import UsageError

pytestmark = pytest.mark.selfcheck
MIB = 2**20
LINK = {"alpha_s": 5e-6, "bytes_per_s": 100e9}


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("all_reduce", Fraction(14, 8)),
        ("all_gather", Fraction(7, 8)),
        ("reduce_scatter", Fraction(7, 8)),
        ("all_to_all", Fraction(7, 8)),
        ("gather", Fraction(7, 8)),
        ("scatter", Fraction(7, 8)),
        ("broadcast", Fraction(1)),
        ("reduce", Fraction(1)),
        ("send", Fraction(1)),
    ],
)
def test_bus_factor_of_eight_ranks(op, expected):
    """2(n−1)/n, (n−1)/n or 1: neither without the division by n nor with a second factor of two."""
    assert bus_factor(op, 8) == expected


def test_a_rank_alone_carries_nothing():
    """The factor of one rank is 0, so a loop-back copy is not sold as bus bandwidth."""
    assert bus_factor("all_reduce", 1) == 0
    assert bus_GBps("all_gather", 1, GB, 1.0) == 0.0


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("all_reduce", 4000),
        ("broadcast", 4000),
        ("all_gather", 16000),
        ("reduce_scatter", 16000),
        ("gather", 16000),
        ("scatter", 16000),
        ("all_to_all", 16000),
    ],
)
def test_the_size_of_a_gather_is_the_gathered_whole(op, expected):
    """1000 float32 elements a rank, 4 ranks: S counts the whole for every operation that cuts or joins it."""
    assert size_bytes(op, 1000, 4, 4) == expected


def test_a_gigabyte_is_decimal():
    """1 GiB in a second is 1.074 GB/s; 1e9 bytes are 1."""
    assert algorithm_GBps(GB, 1.0) == 1.0
    assert algorithm_GBps(GIB, 1.0) == pytest.approx(1.073741824, rel=1e-15)


def test_seconds_are_seconds():
    """1 GB in 1 ms is 1000 GB/s; taken as 1 s it would be 1."""
    assert algorithm_GBps(GB, 1e-3) == pytest.approx(1000.0)
    assert bus_GBps("all_reduce", 4, GB, 0.5) == pytest.approx(3.0)


def test_golden_ring_times():
    """p = 8, 5 µs, 100 GB/s: 88.35 µs for 1 MiB, 18.860 ms for 1 GiB."""
    assert ring_time_s("all_reduce", 8, MIB, **LINK) * 1e6 == pytest.approx(88.35, abs=0.005)
    assert ring_time_s("all_reduce", 8, GIB, **LINK) * 1e3 == pytest.approx(18.860, abs=0.0005)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"])
def test_at_the_crossover_start_up_takes_half(op):
    """Golden: 4.0 MB for the all_reduce above; by definition for the others."""
    size = crossover_bytes(op, 8, **LINK)
    start_up = startup_steps(op, 8) * LINK["alpha_s"]
    assert ring_time_s(op, 8, round(size), **LINK) == pytest.approx(2 * start_up, rel=1e-5)
    assert op != "all_reduce" or size == pytest.approx(4.0e6)


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather():
    """In steps, in bytes and in time."""
    parts = [ring_time_s(op, 6, 6 * MIB, **LINK) for op in ("reduce_scatter", "all_gather")]
    assert sum(parts) == pytest.approx(ring_time_s("all_reduce", 6, 6 * MIB, **LINK))


def test_calls_of_the_source_document():
    """100 B, 0.1 s, 1000 B/s, 3 calls: 0.6 s; no call takes no time."""
    assert calls_time_s(3, 100, startup_s=0.1, bytes_per_s=1000) == pytest.approx(0.6)
    assert calls_time_s(0, 100, startup_s=0.1, bytes_per_s=1000) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: calls_time_s(1, 1, startup_s=0.1, bytes_per_s=0),
        lambda: calls_time_s(-1, 1, startup_s=0.1, bytes_per_s=1),
        lambda: calls_time_s(1, -1, startup_s=0.1, bytes_per_s=1),
        lambda: ring_time_s("all_reduce", 2, -1, **LINK),
        lambda: ring_time_s("all_reduce", 2, 1, alpha_s=-1, bytes_per_s=1),
        lambda: bus_factor("all_reduce", 0),
        lambda: bus_factor("all-reduce", 2),
        lambda: algorithm_GBps(1, 0.0),
        lambda: size_bytes("all_reduce", -1, 4, 2),
    ],
    ids=[
        "no_bandwidth",
        "negative_calls",
        "negative_bytes",
        "negative_size",
        "negative_start_up",
        "no_rank",
        "unknown_operation",
        "no_time",
        "negative_elements",
    ],
)
def test_impossible_inputs_are_refused(call):
    """Negative sizes and times, no bandwidth, an unknown operation."""
    with pytest.raises(UsageError, match="expected"):
        call()
