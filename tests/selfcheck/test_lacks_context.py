"""What torch's context parallelism is said to lack was measured, and is measured here; what it has is not said to lack."""

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


def attended(ctx, kv_heads):
    """Output of torch's templates under the CPU flash operator, causal, for 8 query heads."""
    import torch

    from parproof.subjects.context_protocol import ContextPlan
    from parproof.subjects.torch_native.context import ContextAttention

    q, kv = torch.ones(1, 8, 4, 4), torch.ones(1, kv_heads, 4, 4)
    plan = ContextPlan("ring", "contiguous", True, 8)
    return tuple(ContextAttention().attend(q, kv, kv, plan, ctx.group).shape)


def refusals_of_torch(ctx):
    """What each says: the ring of head and tail blocks without a mask, the public one with a causal flag."""
    import torch
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.experimental import context_parallel
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from parproof.subjects.context_protocol import ContextPlan
    from parproof.subjects.torch_native.context import ContextAttention, _attention

    q, k, v = (t.chunk(ctx.world_size, dim=2)[ctx.rank] for t in tensors()[:3])
    said = []
    try:
        ContextAttention().attend(q, k, v, ContextPlan("ring", "zigzag", False, SEQUENCE), ctx.group)
    except RuntimeError as error:
        said.append(str(error))
    _attention._cp_options.enable_load_balance = False
    mesh, buffer = DeviceMesh.from_group(ctx.group, "cpu"), torch.arange(SEQUENCE + 1)
    with context_parallel(mesh, buffers=[buffer], buffer_seq_dims=[0]), sdpa_kernel(SDPBackend.MATH):
        try:
            torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        except RuntimeError as error:
            said.append(str(error))
        return said, len(buffer)


def test_what_torch_refuses_is_what_its_lacks_and_its_page_say(ranks):
    """And what it does not refuse: a length that does not split, of which one rank gets less."""
    results = ranks(2).run(refusals_of_torch).results
    for (balance, causal), _ in results:
        assert "Load balancing requires `is_causal=True`" in balance
        assert "mixed torch.Tensor and DTensor" in causal
    assert [length for _, length in results] == [5, 4]


def test_torch_merges_no_part_without_keys():
    """Its merger knows output and log-sum-exp: two parts without a key for a query are −inf − (−inf)."""
    import torch

    from parproof.subjects.torch_native.context import _attention

    merger = _attention._SDPAMerger(False, seq_dim=2)
    for lse in (-torch.inf, -torch.inf, 1.0):
        merger.step(torch.ones(1, 1, 1, 2), torch.full((1, 1, 1), lse), False)
    assert merger.results()[0].isnan().all()


def test_torch_has_no_stripes_no_ulysses_and_no_mask_in_its_ring():
    """By the names in its modules and the arguments of its template."""
    import inspect
    from pathlib import Path

    from parproof.subjects.torch_native.context import _attention

    sources = [path.read_text().lower() for path in Path(_attention.__file__).parent.glob("*.py")]
    assert [word for word in ("ulysses", "stripe") if any(word in source for source in sources)] == []
    taken = inspect.signature(_attention._templated_ring_attention).parameters
    assert [name for name in taken if "mask" in name or "document" in name] == []


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_the_flash_operator_takes_shared_heads_so_that_nothing_about_them_is_lacking(kv_heads, ranks):
    """A lack that said so hid cases that are right: they are judged with all others."""
    assert list(ranks(2).run(attended, kv_heads).results) == [(1, 8, 4, 4)] * 2
    assert not [name for name in LACKS if "grouped_heads" in name]
