"""Rank programs of the experiments: they run on every rank, return plain data and assert nothing."""

from parproof.lazy import submodules_of

__getattr__ = submodules_of(__name__)
