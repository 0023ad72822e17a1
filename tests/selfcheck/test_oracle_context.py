"""The oracle of attention with shared tensors against automatic differentiation of the textbook formula."""

import pytest

from parproof import oracles, workloads
from parproof.subjects import context_protocol
from parproof.workloads.context_plans import LENGTH, SHARINGS

pytestmark = pytest.mark.selfcheck


def by_autograd(whole, shared, causal):
    """Output and gradients by torch.nn.functional, on one long list of keys."""
    import torch

    q, k, v = (t.clone().requires_grad_() for t in whole[:3])
    leaves = {name: t.clone().requires_grad_() for name, t in shared.items()}
    normed = {"q": q, "k": k}
    for name, x in normed.items():
        if (weight := leaves.get(f"{name}_weight")) is not None:
            rows = x if weight.numel() == x.shape[-1] else x.transpose(1, 2).flatten(2)
            made = torch.nn.functional.rms_norm(rows, weight.shape, weight, context_protocol.NORM_EPS)
            normed[name] = made if rows is x else made.unflatten(2, (x.shape[1], -1)).transpose(1, 2)
    nothing = k[:, :, :0]
    prefix = leaves.get("prefix_k", nothing)
    keys, values = torch.cat([prefix, normed["k"]], 2), torch.cat([leaves.get("prefix_v", nothing), v], 2)
    seen = torch.ones(q.shape[2], keys.shape[2], dtype=torch.bool)
    if causal:
        seen = seen.tril(prefix.shape[2])
    out = torch.nn.functional.scaled_dot_product_attention(
        normed["q"], keys, values, attn_mask=seen, enable_gqa=True
    )
    out.backward(whole[3])
    return {"out": out.detach(), "dq": q.grad, "dk": k.grad, "dv": v.grad} | {
        name: leaf.grad for name, leaf in leaves.items()
    }


@pytest.mark.parametrize("kind", SHARINGS)
def test_results_are_those_of_automatic_differentiation(kind):
    """Two derivations of one function: they agree to the last digits."""
    import torch

    sharing = SHARINGS[kind]
    sizes = {"heads": 2, "kv_heads": sharing.kv_heads // 4}
    whole, shared = (
        workloads.context.sharing_call(sharing, **sizes),
        workloads.context.sharing(sharing, **sizes),
    )
    real = [t[:, :, : LENGTH - sharing.padding] for t in whole]
    exact, absolute, _ = oracles.context_sharing.dense(*real, shared, causal=sharing.causal)
    for name, expected in by_autograd(real, shared, sharing.causal).items():
        assert torch.allclose(exact[name], expected, rtol=1e-11, atol=1e-11), name
        assert (absolute[name] >= exact[name].abs() * (1 - 1e-12)).all(), name


def test_oracle_and_protocol_norm_alike():
    """The oracle states the constant for itself; another one would be another function."""
    assert oracles.context_sharing.NORM_EPS == context_protocol.NORM_EPS
