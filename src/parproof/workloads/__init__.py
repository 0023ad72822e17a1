"""Inputs whose answers are known exactly: values that encode the rank and the position."""

from parproof.lazy import submodules_of

__getattr__ = submodules_of(__name__)
