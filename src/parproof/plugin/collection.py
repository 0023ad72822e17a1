"""Collection without the garbage collector: thousands of items, and what `ranks` loads at its end, come and stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Off while tests are collected; afterwards as it was. To look through what stays takes a sixth of the collection."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return (yield)
    finally:
        if collects:
            gc.enable()
