"""Every kind of communication torch can do, once each, with what the ledger must say about it."""

from parproof.lazy import submodules_of

__getattr__ = submodules_of(__name__)
