"""A pool's private directory, removed when the pool ends, or by the next session if its owner was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile

_PREFIX = "parproof-ranks-"


class PrivateDirectory:
    """A fresh directory (mode 0700) that is locked for as long as its owner lives."""

    def __init__(self) -> None:
        _sweep()
        self.path = tempfile.mkdtemp(prefix=_PREFIX)
        self._lock = os.open(os.path.join(self.path, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Delete it with all it holds."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _sweep() -> None:
    """Remove what killed sessions of this user left behind: their locks are free."""
    root = tempfile.gettempdir()
    with contextlib.suppress(OSError):
        for name in os.listdir(root):
            if name.startswith(_PREFIX):
                _remove_if_abandoned(os.path.join(root, name))


def _remove_if_abandoned(path: str) -> None:
    try:
        lock = os.open(os.path.join(path, "lock"), os.O_RDWR)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    else:
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)
