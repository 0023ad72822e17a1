"""What torch ships no training-state layout for."""

_DDP_ONLY = "an option of DistributedDataParallel"
_ONE_DTYPE = "it trains parameters in their own dtype, and torch ships no optimizer that keeps float32 masters of bfloat16 ones"
LACKS: dict[str, str] = {
    "zero.mixed16.ddp": f"DistributedDataParallel: {_ONE_DTYPE}",
    "zero.mixed16.zero1": f"ZeroRedundancyOptimizer: {_ONE_DTYPE}",
    "zero.static_graph.zero[23]": _DDP_ONLY,
    "zero.static_graph.hsdp": _DDP_ONLY,
    "zero.raw_hook.zero[23]": _DDP_ONLY,
    "zero.raw_hook.hsdp": _DDP_ONLY,
    "zero.small_buckets.zero[23]": _DDP_ONLY,
    "zero.small_buckets.hsdp": _DDP_ONLY,
    "zero.mixed_dtype.zero1": "ZeroRedundancyOptimizer asks for parameters of one dtype",
    "zero.async_save.zero1": "ZeroRedundancyOptimizer has no asynchronous checkpoint",
}
