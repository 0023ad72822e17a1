"""Inputs of context parallelism are what their docstrings say: values of their own for each place, group and call."""

import itertools

import pytest

from parproof import workloads
from parproof.checks import context_cases as cases
from parproof.workloads.context_plans import LENGTH, SHARINGS

pytestmark = pytest.mark.selfcheck


@pytest.mark.parametrize("series", range(2))
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (8, 1), (12, 12)])
def test_no_vector_equals_another_and_none_is_zero(heads, kv_heads, series):
    """A row, head or position taken for another one then shows, whichever two they are."""
    import torch

    made = workloads.context.tensors(
        heads=heads, kv_heads=kv_heads, length=LENGTH, dtype=torch.float64, series=series
    )
    for tensor, limit in zip(made, (2, 2, 8, 3), strict=True):
        vectors = tensor.flatten(0, 2)
        assert len(vectors.unique(dim=0)) == len(vectors)
        assert vectors.any(dim=1).all()
        assert tensor.abs().max() <= limit


@pytest.mark.parametrize("kind", SHARINGS)
def test_no_two_groups_or_calls_share_data(kind):
    """What came from the wrong group, or from the call before, is not equal by chance."""
    layers = cases.shared(kind)
    assert len(layers) == SHARINGS[kind].groups
    assert {len(layer.calls) for layer in layers} == {cases.CALLS}
    for one, other in itertools.combinations([call for layer in layers for call in layer.calls], 2):
        assert not any(a.equal(b) for a, b in zip(one, other, strict=True))
    for one, other in itertools.combinations([layer.shared for layer in layers], 2):
        assert not any(one[name].equal(other[name]) for name in one)
