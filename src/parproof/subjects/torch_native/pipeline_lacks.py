"""What torch.distributed.pipelining does not offer."""

LACKS = {
    "pipeline.tensor_boundary": "torch.distributed.pipelining sends whole tensors, whatever the stages are split over",
    "pipeline.uneven": "torch.distributed.pipelining takes no sizes of micro-batches: a batch of 7 becomes 3, 2, 2, while"
    " receive buffers keep 3 rows for all (pytorch#126600: not supported; that it is not refused either, C8 finds)",
    "pipeline.tied.ranks": "torch.distributed.pipelining does not know of weights tied across ranks;"
    " exchanging their gradients is left to the caller",
}
