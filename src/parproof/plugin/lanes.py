"""Lanes: which tests exist in which lane, and an explicit reason where a lane cannot run here."""

from __future__ import annotations

from typing import Any

import pytest

from parproof import hardware
from parproof.plugin.options import LANES


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Collect a test marked `lanes(...)` once for each lane, marked with that lane."""
    marker = metafunc.definition.get_closest_marker("lanes")
    if marker is None:
        return
    unknown = [name for name in marker.args if name not in LANES]
    if unknown:
        where = metafunc.definition.nodeid
        raise pytest.Collector.CollectError(
            f"{where}: unknown lane {', '.join(unknown)}; lanes are {', '.join(LANES)}"
        )
    control = marker.kwargs.get("control", 1)
    if set(marker.kwargs) - {"control"} or type(control) is not int or control < 1:
        raise pytest.Collector.CollectError(
            f"{metafunc.definition.nodeid}: lanes takes names and control=n, an int from 1; found {dict(marker.kwargs)}"
        )
    if "lane" not in metafunc.fixturenames:
        return  # starts no ranks: one collection is enough, see pytest_collection_modifyitems
    params = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in marker.args]
    metafunc.parametrize("lane", params, indirect=True)


@pytest.fixture
def lane(request: pytest.FixtureRequest) -> str:
    """The lane this test runs in."""
    return str(getattr(request, "param", "cpu"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that starts ranks and names no lane belongs to `cpu`, so that -m cpu finds it; one that names lanes
    but starts no ranks belongs to the first of them."""
    for item in items:
        marker = item.get_closest_marker("lanes")
        if marker is not None and marker.args and lane_of(item) is None:
            item.add_marker(getattr(pytest.mark, marker.args[0]))
        uses_ranks = "ranks" in getattr(item, "fixturenames", ())
        if uses_ranks and lane_of(item) is None and item.get_closest_marker("selfcheck") is None:
            item.add_marker(pytest.mark.cpu)


def parameters_of(item: pytest.Item) -> dict[str, Any]:
    """The item's parameters by name; none where it has none."""
    callspec = getattr(item, "callspec", None)
    return dict(callspec.params) if callspec else {}


def lane_of(item: pytest.Item) -> str | None:
    """The lane an item is marked with, or whose ranks it asks for: a case of the control is of its lane, in it or not."""
    markers = {marker.name for marker in item.iter_markers()}
    marked = next((name for name in LANES if name in markers), None)
    asked = parameters_of(item).get("lane")
    return marked or (asked if asked in LANES else None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip before anything is started, or fail when the lane was required."""
    name = lane_of(item)
    if name is not None:
        require_lane(item.config, name)


def require_lane(config: pytest.Config, name: str, world_size: int = 0) -> None:
    """Skip, or fail under --require, unless this machine can run `world_size` ranks in the lane."""
    unmet = hardware.unmet_need(name, world_size)
    if unmet is None:
        return
    if name in config.getoption("--require"):
        pytest.fail(f"required lane cannot run: {unmet}", pytrace=False)
    pytest.skip(str(unmet))
