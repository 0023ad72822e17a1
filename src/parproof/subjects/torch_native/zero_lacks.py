"""What torch ships no training-state layout for."""

_DDP_ONLY = "an option of DistributedDataParallel"
_DOUBLE = "FSDP gives a unit's parameters back in the first backward, so a second one through them cannot run"
LACKS: dict[str, str] = {
    "zero.mixed16.*": "torch ships no optimizer that keeps float32 master copies of bfloat16 parameters",
    "zero.static_graph.zero[23]": _DDP_ONLY,
    "zero.static_graph.hsdp": _DDP_ONLY,
    "zero.raw_hook.zero[23]": _DDP_ONLY,
    "zero.raw_hook.hsdp": _DDP_ONLY,
    "zero.small_buckets.zero[23]": _DDP_ONLY,
    "zero.small_buckets.hsdp": _DDP_ONLY,
    "zero.penalty.zero[23]": _DOUBLE,
    "zero.penalty.hsdp": _DOUBLE,
    "zero.mixed_dtype.zero1": "ZeroRedundancyOptimizer asks for parameters of one dtype",
    "zero.async_save.zero1": "ZeroRedundancyOptimizer has no asynchronous checkpoint",
}
