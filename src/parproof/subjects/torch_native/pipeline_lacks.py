"""What torch.distributed.pipelining does not offer."""

LACKS = {
    "pipeline.tensor_boundary": "torch.distributed.pipelining sends whole tensors, whatever the stages are split over",
    "pipeline.tied.ranks": "torch.distributed.pipelining does not know of weights tied across ranks;"
    " exchanging their gradients is left to the caller",
}
