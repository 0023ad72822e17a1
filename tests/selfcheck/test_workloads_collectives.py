"""What is asked of collectives is thinned, but no reduction is left out anywhere."""

import pytest

from parproof.workloads.collective_cases import DTYPES, REDUCING, name, places, reduce_ops, value_cases

pytestmark = pytest.mark.selfcheck


@pytest.mark.parametrize("place", [place for place in places() if place[0] in REDUCING], ids=name)
def test_every_reduction_is_judged_in_every_layout_and_world(place):
    """Integers have the bitwise ones; one dtype at least stands for each."""
    op, layout, kind, world = place
    dtypes = ("bool",) if kind == "bool" else tuple(dtype for dtype in DTYPES if dtype != "bool")
    asked = {case.reduce_op for case in value_cases(op, layout, kind, world)}
    assert asked == {reduce_op for dtype in dtypes for reduce_op in reduce_ops(dtype)}
