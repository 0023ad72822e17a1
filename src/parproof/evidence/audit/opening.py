"""Opening files of a directory that somebody else filled: regular files inside it, and nothing that waits or leads away."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import deque
from pathlib import Path
from typing import BinaryIO

from parproof.evidence.audit.findings import Unusable

MAX_FILES = 200_000
MAX_FOLDER_DEPTH = 8
MAX_EVIDENCE_BYTES = 8 * 1024**3
"""More than this is not read: 100,000 records of the largest kind seen are half of it."""
_BLOCK = 1 << 20
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
_SAFE = _READ | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def check_directory(directory: Path) -> None:
    """Errors: Unusable for what is no directory, or a link to one."""
    if directory.is_symlink():
        raise Unusable(f"{directory} is a link; name the directory that it leads to")
    if not directory.is_dir():
        raise Unusable(f"{directory} is no directory")


def open_regular(directory: Path, name: str) -> BinaryIO:
    """Open a regular file below the directory. No part of the name may be a link, and opening never waits.

    Errors   Unusable for anything else, with the reason
    """
    parts = name.split("/")
    if not all(parts) or {".", ".."} & set(parts):
        raise Unusable(f"{name} leaves the directory")
    try:
        return _opened(directory, parts)
    except OSError as error:
        raise Unusable(f"{name} is missing or no regular file: {error.strerror}") from error


def open_named(path: Path) -> BinaryIO:
    """Open a file that the caller chose, which may be a link; a pipe, a device or a folder is refused.

    Errors   Unusable
    """
    try:
        return _regular(os.open(path, _READ | getattr(os, "O_NONBLOCK", 0)))
    except (OSError, ValueError) as error:
        raise Unusable(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _opened(directory: Path, parts: list[str]) -> BinaryIO:
    if os.open not in os.supports_dir_fd:
        path = directory
        for part in parts:
            path = path / part
            if path.is_symlink():
                raise OSError(None, "a link")
        return _regular(os.open(path, _SAFE))
    folder = os.open(directory, _READ)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _SAFE | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        return _regular(os.open(parts[-1], _SAFE, dir_fd=folder))
    finally:
        os.close(folder)


def _regular(descriptor: int) -> BinaryIO:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "a folder, a pipe, a socket or a device")
    return os.fdopen(descriptor, "rb")


def size_of(file: BinaryIO) -> int:
    """Bytes of an open file, as it is now."""
    return os.fstat(file.fileno()).st_size


def read_at_most(file: BinaryIO, limit: int, name: str) -> bytes:
    """All of a small file, whatever its size was said to be. Errors: Unusable."""
    try:
        # A buffer of the size asked for is made before anything is read.
        data = file.read(min(limit, size_of(file)) + 1)
    except OSError as error:
        raise Unusable(f"{name}: {error.strerror}") from error
    if len(data) > limit:
        raise Unusable(f"{name} has more than {limit} bytes")
    return data


def digest_of(file: BinaryIO, num_bytes: int) -> str:
    """sha256 of the first `num_bytes`: a file that grows while it is read does not hold us up."""
    found = hashlib.sha256()
    while num_bytes > 0 and (block := file.read(min(_BLOCK, num_bytes))):
        found.update(block)
        num_bytes -= len(block)
    return found.hexdigest()


def entries(directory: Path) -> dict[str, bool]:
    """Name → is it a regular file, for all but folders. Links are entries; nothing is entered through one.

    Errors   Unusable when there are more files, or folders in folders, than any evidence has
    """
    found: dict[str, bool] = {}
    rest = deque([(directory, "", 0)])
    while rest:
        folder, prefix, depth = rest.popleft()
        if depth > MAX_FOLDER_DEPTH:
            raise Unusable(f"{prefix[:200]} lies more than {MAX_FOLDER_DEPTH} folders deep")
        try:
            with os.scandir(folder) as listing:
                for entry in listing:
                    if entry.is_dir(follow_symlinks=False):
                        rest.append((Path(entry.path), f"{prefix}{entry.name}/", depth + 1))
                    else:
                        found[prefix + entry.name] = entry.is_file(follow_symlinks=False)
                    if len(found) + len(rest) > MAX_FILES:
                        raise Unusable(f"more than {MAX_FILES} files and folders in {directory}")
        except OSError:
            found[prefix or "."] = False
    return found
