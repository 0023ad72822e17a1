"""What torch ships no training-state layout for."""

_DDP_ONLY = "an option of DistributedDataParallel"
LACKS: dict[str, str] = {
    "zero.mixed16.*": "torch ships no optimizer that keeps float32 master copies of bfloat16 parameters",
    "zero.static_graph.zero[23]": _DDP_ONLY,
    "zero.static_graph.hsdp": _DDP_ONLY,
    "zero.raw_hook.zero[23]": _DDP_ONLY,
    "zero.raw_hook.hsdp": _DDP_ONLY,
    "zero.small_buckets.zero[23]": _DDP_ONLY,
    "zero.small_buckets.hsdp": _DDP_ONLY,
    "zero.penalty.zero[23]": "FSDP2 does not support higher-order gradients inside the forward",
    "zero.penalty.hsdp": "FSDP2 does not support higher-order gradients inside the forward",
    "zero.mixed_dtype.zero1": "ZeroRedundancyOptimizer asks for parameters of one dtype",
    "zero.async_save.ddp": "torch.distributed.checkpoint.async_save is exercised with sharded state",
}
