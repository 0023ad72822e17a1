"""Numbers for people: exact where they are counts, three digits where they are times and rates."""

from __future__ import annotations

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def count(value: int | float) -> str:
    """Thousands apart."""
    return f"{value:,}"


def digits(value: float) -> str:
    """Three significant digits, without an exponent where it can be avoided."""
    if value == 0:
        return "0"
    return f"{value:.3g}" if 1e-4 <= abs(value) < 1e4 else f"{value:.2e}"


def seconds(value: float) -> str:
    """In the largest unit that leaves at least one digit before the point."""
    for unit, name in _TIMES:
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value / 1e-6:.2g} µs"


def size(num_bytes: int) -> str:
    """Binary units for whole multiples that people know; exact bytes below."""
    for unit, name in _SIZES:
        if num_bytes >= unit:
            return f"{num_bytes / unit:.4g} {name}"
    return f"{num_bytes} B"


def percent(share: float) -> str:
    """One digit after the point."""
    return f"{100 * share:.1f} %"
