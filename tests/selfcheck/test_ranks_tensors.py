"""Tensors among the results of a run: by value, compact, and as they were."""

import argparse

import pytest

pytestmark = pytest.mark.selfcheck


def tensors(ctx):
    """Of every kind that a program may return."""
    import torch

    x = torch.arange(6.0).reshape(2, 3) + ctx.rank
    return {
        "number": torch.tensor(3, dtype=torch.int64),
        "empty": torch.empty(0, 3, dtype=torch.float16),
        "bfloat16": x.bfloat16(),
        "transposed": x.t(),
        "column": x[:, 1],
        "parameter": torch.nn.Parameter(x, requires_grad=False),
        "activation": (x.clone().requires_grad_() * 2),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "wrong bool": torch.tensor([0, 1, 2], dtype=torch.uint8).view(torch.bool),
        "sparse": x.to_sparse(),
    }


def test_tensors_come_back_with_type_shape_elements_and_flags(ranks):
    """Element for element and bit for bit, whatever they were views of; a wrong byte stays wrong."""
    import torch

    found = ranks(2).run(tensors).results[1]
    for name, expected in tensors(argparse.Namespace(rank=1)).items():
        got = found[name]
        assert (type(got), got.dtype, got.shape) == (type(expected), expected.dtype, expected.shape), name
        assert got.requires_grad == expected.requires_grad, name
        assert torch.equal(got.detach().to_dense(), expected.detach().to_dense()), name
    assert found["wrong bool"].view(torch.uint8).tolist() == [0, 1, 2]


def seen(ctx, **arguments):
    """What a program is given: values, strides, whether it may be resized, and what else hangs on it."""
    return {
        name: (x.tolist(), x.stride(), x.untyped_storage().resizable(), x.requires_grad, dict(vars(x)))
        for name, x in arguments.items()
    }


def test_arguments_arrive_as_they_were_given(ranks):
    """Places, elements and attributes: a program is not to find a tidier tensor than the test made."""
    import torch

    x = torch.arange(6.0).reshape(2, 3)
    noted = torch.ones(2)
    noted.note = "mine"
    given = {
        "plain": x.clone(),
        "transposed": x.t(),
        "column": x[:, 1],
        "tail": x[1:],
        "expanded": torch.ones(1).expand(3),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "parameter": torch.nn.Parameter(x.clone()),
        "noted": noted,
        "empty": torch.empty(0, 3),
        "number": torch.tensor(3),
    }
    found = ranks(2).run(seen, **given).results[1]
    assert found == seen(None, **given)
