"""Assertions as plain functions, usable from any test runner: they raise AssertionError and import no pytest."""

from parproof.checks.ledger import assert_ledger, assert_ledger_complete
from parproof.checks.values import assert_exact, assert_within
from parproof.lazy import submodules_of

__all__ = ["assert_exact", "assert_ledger", "assert_ledger_complete", "assert_within"]
__getattr__ = submodules_of(__name__)
