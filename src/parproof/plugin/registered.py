"""Tests of this checkout name registered experiments and claims only. Loaded by its conftest; a stranger's is free."""

from __future__ import annotations

import pytest

from parproof import registry


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A typing error in a marker would drop a test from every table and every evidence."""
    wrong = sorted({text for item in items for text in _unknown(item)})
    if wrong:
        raise pytest.UsageError("\n  ".join(["not in src/parproof/registry.toml:", *wrong]))


def _unknown(item: pytest.Item) -> list[str]:
    where = item.nodeid.partition("[")[0]
    claims = [claim for marker in item.iter_markers("claim") for claim in marker.args]
    marker = item.get_closest_marker("experiment")
    if marker is None:
        return [f"{where}: claim {claim} of no experiment" for claim in claims]
    experiment = registry.load().experiment(marker.args[0])
    if experiment is None:
        return [f"{where}: experiment {marker.args[0]}"]
    return [f"{where}: {experiment.id}/{claim}" for claim in claims if experiment.claim(claim) is None]
