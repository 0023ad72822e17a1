"""The library that signs and verifies, imported only when somebody seals: the rest of the auditors' half does without."""

from __future__ import annotations

import importlib
from types import ModuleType

from parproof.errors import UsageError

_CRYPTOGRAPHY = "cryptography.hazmat.primitives"


def primitives(name: str) -> ModuleType:
    """A module of cryptography's primitives. Errors: UsageError where it is not installed."""
    try:
        return importlib.import_module(f"{_CRYPTOGRAPHY}.{name}")
    except ImportError as error:
        raise UsageError(
            f"signatures need the cryptography package: {error}",
            expected="parproof installed with its extra «sign»",
            where="seal",
            next_step="pip install 'parproof[sign]'",
        ) from error
