"""A pool's private directory, removed when the pool ends, or by the next session if its owner was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile

PREFIX = "parproof-ranks-"
_LOCK = "lock"


class PrivateDirectory:
    """A fresh directory (mode 0700) that is locked for as long as its owner lives."""

    def __init__(self) -> None:
        _sweep()
        self.path = tempfile.mkdtemp(prefix=PREFIX)
        # The name appears only when the lock is held, so that no other session sees it free.
        fresh = os.path.join(self.path, f"{_LOCK}.new")
        self._lock = os.open(fresh, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.rename(fresh, os.path.join(self.path, _LOCK))

    def remove(self) -> None:
        """Delete it with all it holds."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _sweep() -> None:
    """Remove what killed sessions of this user left behind: their locks are free."""
    root = tempfile.gettempdir()
    with contextlib.suppress(OSError):
        for name in os.listdir(root):
            if name.startswith(PREFIX):
                _remove_if_abandoned(os.path.join(root, name))


def _remove_if_abandoned(path: str) -> None:
    try:
        lock = os.open(os.path.join(path, _LOCK), os.O_RDWR)
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
