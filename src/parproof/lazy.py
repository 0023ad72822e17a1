"""Submodules that are imported when they are first used, so that a test module can name them without torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType


def submodules_of(package: str) -> Callable[[str], ModuleType]:
    """A module-level `__getattr__` (PEP 562): `from parproof import programs`, then `programs.zero.train`.

    Collection of the suite must not import torch, and rank programs, oracles and workloads do.
    """

    def lookup(name: str) -> ModuleType:
        if name.startswith("_"):
            raise AttributeError(f"{package} has no attribute {name}")
        try:
            return importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError as missing:
            if missing.name != f"{package}.{name}":
                raise
            raise AttributeError(f"{package} has no module {name}") from missing

    return lookup
