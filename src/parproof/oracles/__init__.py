"""Single-process answers and closed forms; nothing here ever sees a process group."""

from parproof.lazy import submodules_of

__getattr__ = submodules_of(__name__)
