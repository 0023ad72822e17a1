"""What torch does not offer for tensor parallelism: capability pattern → reason. No torch here."""

LACKS: dict[str, str] = {
    "tensor.plan": "torch lays out weights, not heads: there is no head plan to ask for",
    "tensor.attention.replicate": (
        "ColwiseParallel cuts K and V by rows of the weight, so with fewer KV heads than ranks it would cut a head"
    ),
    "tensor.redistribute.split_to_split.traffic": (
        "on the CPU DTensor has no all-to-all for it: it gathers every part, padded along both dims, and cuts"
    ),
}
