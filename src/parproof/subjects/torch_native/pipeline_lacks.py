"""What torch.distributed.pipelining does not offer."""

LACKS = {
    "pipeline.tied.ranks": "torch.distributed.pipelining does not know of weights tied across ranks;"
    " exchanging their gradients is left to the caller",
}
