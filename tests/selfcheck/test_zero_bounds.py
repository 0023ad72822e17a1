"""The bounds of PAR-ZERO-STATE hold what docs/numerics.md says of them, and the oracle is Adam."""

import pytest

from parproof import oracles, workloads
from parproof.checks import zero_bounds
from parproof.subjects.zero_protocol import StatePlan

pytestmark = pytest.mark.selfcheck
SMOOTH_KINDS = ("smooth", "penalty", "gated", "odd", "unused", "divergent", "tied", "mixed_dtype")


def hessian(kind, plan):
    """Second derivatives of the loss at the parameters reached after two windows, in float64."""
    import torch

    module = workloads.zero.build(kind, torch.float64)
    reached = oracles.zero.single_process(kind, plan, 2).parameters
    for name, parameter in module.named_parameters():
        parameter.data.copy_(reached[name])
    trainable = [p for p in module.parameters() if p.requires_grad]
    loss = module(*workloads.zero.global_batch(kind, 2, torch.float64))
    slopes = torch.autograd.grad(loss, trainable, create_graph=True, allow_unused=True)
    used = [(p, g) for p, g in zip(trainable, slopes, strict=True) if g is not None]
    flat = torch.cat([g.flatten() for _, g in used])
    rows = [
        torch.autograd.grad(entry, [p for p, _ in used], retain_graph=True, allow_unused=True)
        for entry in flat
    ]
    zero = [torch.zeros_like(p) for p, _ in used]
    return torch.stack(
        [
            torch.cat([(g if g is not None else z).flatten() for g, z in zip(row, zero, strict=True)])
            for row in rows
        ]
    )


@pytest.mark.parametrize("kind", SMOOTH_KINDS)
def test_no_workload_is_steeper_than_the_bound_assumes(kind):
    """CURVATURE is the largest eigenvalue that `drift` reckons with."""
    import torch

    largest = float(torch.linalg.eigvalsh(hessian(kind, StatePlan("ddp"))).abs().max())
    assert largest <= zero_bounds.CURVATURE


def test_a_relative_error_of_one_millionth_is_outside_of_every_bound():
    """In float64 the bound is nine orders of magnitude below a missed mean."""
    (gradients,) = oracles.zero.single_process("smooth", StatePlan("ddp"), 1).gradients
    limits = zero_bounds.gradient_bounds(gradients, world=8, samples=24)
    for name, gradient in gradients.items():
        assert limits[name] < 1e-6 * float(gradient.norm())


def test_a_mean_over_one_to_four_ranks_is_exact_where_weights_are_multiples_of_three():
    """What resumed training on other numbers of ranks relies on: products with fl(1/3) or with fl(1/n) round back."""
    (whole,) = oracles.zero.single_process("linear", StatePlan("ddp"), 1).gradients
    for world in (1, 2, 3, 4):
        mean = oracles.zero.gradient_in_rank_order("linear", "float64", world=world, accumulation=1)
        thirds = {name: gradient * world * (1 / world) for name, gradient in mean.items()}
        for name, gradient in whole.items():
            assert (gradient == mean[name]).all()
            assert (gradient == thirds[name]).all()
            assert (gradient * 24 == (gradient * 24).round()).all()


def test_three_steps_stay_a_million_times_below_a_wrong_update():
    """The bound on parameters, against how far a training with the sum instead of the mean ends up."""
    plan = StatePlan("ddp", max_norm=4.0, weight_decay=0.1)
    right = oracles.zero.single_process("smooth", plan, 3)
    wrong = oracles.zero.single_process("smooth", StatePlan("ddp", weight_decay=0.1), 3)
    near = zero_bounds.drift(right, plan, world=4, samples=24)
    apart = max(float((right.parameters[n] - p).norm()) for n, p in wrong.parameters.items())
    assert near.parameters * 1e6 < apart


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_the_textbook_optimizers_are_those_of_torch(optimizer):
    """An oracle that shares no code with torch.optim agrees with it to rounding."""
    import torch

    plan = StatePlan("ddp", optimizer=optimizer, weight_decay=0.1)
    truth = oracles.zero.single_process("smooth", plan, 3)
    module = workloads.zero.build("smooth", torch.float64)
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optimizer]
    extra = {} if optimizer == "sgd" else {"betas": plan.betas, "eps": plan.eps}
    judge = kind(module.parameters(), lr=plan.lr, weight_decay=plan.weight_decay, **extra)
    for window in range(3):
        judge.zero_grad()
        module(*workloads.zero.global_batch("smooth", window, torch.float64)).backward()
        judge.step()
    for name, parameter in module.named_parameters():
        assert float((parameter - truth.parameters[name]).detach().norm()) < 1e-14
