"""Which torch is installed, for what holds of some releases only. Without importing torch."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import metadata


@functools.cache
def installed() -> tuple[int, int]:
    """(2, 13) for «2.13.0+cpu». A pre-release or a nightly counts as the release it becomes."""
    return release(metadata.version("torch"))


def release(version: str) -> tuple[int, int]:
    """The first two numbers of a version. Errors: ValueError for what has none."""
    major, minor = version.split("+")[0].split(".")[:2]
    return int(major), int(minor)


def before(version: str) -> bool:
    """Is the installed torch older than this release?"""
    return installed() < release(version)


def lacking_before(version: str, lacks: Mapping[str, str]) -> dict[str, str]:
    """What torch lacked before this release: capability pattern → reason; nothing where a newer one is installed."""
    return (
        {pattern: f"before torch {version}: {why}" for pattern, why in lacks.items()}
        if before(version)
        else {}
    )
