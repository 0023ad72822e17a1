"""Why torch lacks a replicated prefix: what its context parallelism makes of one was measured, and is measured here."""

import pytest

from parproof.subjects.torch_native.context_lacks import LACKS

pytestmark = pytest.mark.selfcheck
SEQUENCE, PREFIX = 8, 3


def tensors():
    """(q, k, v of the sequence, keys and values of the prefix), float64."""
    import torch

    generator = torch.Generator().manual_seed(3)
    lengths = (SEQUENCE, SEQUENCE, SEQUENCE, PREFIX, PREFIX)
    return [torch.randn(1, 4, n, 4, dtype=torch.float64, generator=generator) for n in lengths]


def with_the_prefix_on_each_rank(ctx, public):
    """Attention of this rank's queries, as a user who puts the prefix in front of each rank's keys would get it."""
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.experimental import context_parallel
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from parproof.subjects.context_protocol import ContextPlan
    from parproof.subjects.torch_native.context import ContextAttention, _attention

    *sequence, prefix_k, prefix_v = tensors()
    q, k, v = (t.chunk(ctx.world_size, dim=2)[ctx.rank] for t in sequence)
    k, v = torch.cat([prefix_k, k], 2), torch.cat([prefix_v, v], 2)
    if not public:
        return ContextAttention().attend(
            q, k, v, ContextPlan("ring", "contiguous", False, SEQUENCE), ctx.group
        )
    _attention._cp_options.enable_load_balance = False
    # The public one takes as many queries as keys: the prefix asks too, and its answers are cut off.
    q = torch.cat([prefix_k, q], 2)
    mesh, buffer = DeviceMesh.from_group(ctx.group, "cpu"), torch.arange(SEQUENCE)
    with context_parallel(mesh, buffers=[buffer], buffer_seq_dims=[0]), sdpa_kernel(SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)[:, :, PREFIX:]


@pytest.mark.parametrize("public", [True, False], ids=["context_parallel", "ring_templates"])
def test_torch_counts_a_prefix_once_for_each_rank(public, ranks):
    """On two ranks the result is that of a sequence with the prefix in it twice, and not of one with it once."""
    import torch

    assert "counts once for each" in LACKS["context.*.prefix*"]
    found = torch.cat(ranks(2).run(with_the_prefix_on_each_rank, public).results, dim=2)
    q, k, v, prefix_k, prefix_v = tensors()
    errors = []
    for copies in (1, 2):
        keys, values = torch.cat([prefix_k] * copies + [k], 2), torch.cat([prefix_v] * copies + [v], 2)
        expected = torch.nn.functional.scaled_dot_product_attention(q, keys, values)
        errors.append(float((found - expected).abs().max()))
    assert errors[0] > 0.1
    assert errors[1] < 1e-14
