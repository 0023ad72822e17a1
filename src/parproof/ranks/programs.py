"""Rank programs by name: how the pool names one, and how a rank server finds it again."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from parproof.errors import UsageError
from parproof.ranks.protocol import ProgramRef


def program_reference(program: Callable[..., Any]) -> ProgramRef:
    """Name a rank program so that another process can find it. Raises UsageError when it has no such name."""
    qualname = getattr(program, "__qualname__", "")
    module = getattr(program, "__module__", "")
    owner = getattr(program, "__self__", None)
    is_bound = owner is not None and not isinstance(owner, (type, ModuleType))
    if (
        not module
        or not qualname
        or "<" in qualname
        or is_bound
        or not _leads_back(program, module, qualname)
    ):
        raise UsageError(
            f"{_described(program)} cannot be found by name in another process",
            expected="a plain function at the top level of a module: def program(ctx, *args)",
            where="rank program",
            next_step="move it to module level and pass what it closes over as arguments",
        )
    path = getattr(sys.modules.get(module), "__file__", None)
    return ProgramRef(module, qualname, os.path.abspath(path) if path else None)


def _described(program: object) -> str:
    """Without memory addresses, so that the text is the same in every run."""
    if isinstance(program, functools.partial):
        return f"functools.partial of {_described(program.func)}"
    name = getattr(program, "__qualname__", None)
    return f"{type(program).__name__} {name}" if name else f"an object of type {type(program).__name__}"


def _leads_back(program: object, module: str, qualname: str) -> bool:
    """A name that another object has taken over (a decorator, a later definition) leads elsewhere."""
    if module not in sys.modules:
        return True
    try:
        return bool(functools.reduce(getattr, qualname.split("."), sys.modules[module]) == program)
    except AttributeError:
        return False


class ProgramFinder:
    """Finds rank programs inside a rank server; a module whose file has changed is loaded again."""

    def __init__(self) -> None:
        self._modules: dict[str, tuple[int, ModuleType]] = {}

    def find(self, reference: ProgramRef) -> Callable[..., Any]:
        """The function. Raises whatever its module raises when it is imported."""
        module = self._module(reference)
        found: Callable[..., Any] = functools.reduce(getattr, reference.qualname.split("."), module)  # type: ignore[assignment]
        return found

    def _module(self, reference: ProgramRef) -> ModuleType:
        """Import by name where the name leads to the same file; else load the file (test modules)."""
        if reference.path is None:
            return importlib.import_module(reference.module)
        if reference.module == "__main__" and "__mp_main__" in sys.modules:
            # multiprocessing has imported the script under this name, without running its main part.
            return sys.modules["__mp_main__"]
        changed = os.stat(reference.path).st_mtime_ns
        known = self._modules.get(reference.path)
        if known and known[0] == changed:
            return known[1]
        module = None if known else _importable(reference)
        if module is None:
            module = _load_file(reference)
        self._modules[reference.path] = (changed, module)
        return module


def _importable(reference: ProgramRef) -> ModuleType | None:
    try:
        spec = importlib.util.find_spec(reference.module)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or reference.path is None:
        return None
    same = os.path.realpath(spec.origin) == os.path.realpath(reference.path)
    return importlib.import_module(reference.module) if same else None


def _load_file(reference: ProgramRef) -> ModuleType:
    spec = importlib.util.spec_from_file_location(reference.module, str(reference.path))
    if spec is None or spec.loader is None:
        raise UsageError(f"cannot load the module of rank program {reference}", where=str(reference.path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[reference.module] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(reference.module, None)
        raise
    return module
