"""What the reference sharding of training state leaves out."""

LACKS: dict[str, str] = {
    "zero.static_graph*": "its order of reductions is fixed anyway",
    "zero.fused*": "its Adam exists in one form only",
    "zero.raw_hook*": "it has no communication hooks",
    "zero.small_buckets*": "it has no buckets",
}
