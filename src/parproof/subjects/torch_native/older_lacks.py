"""What releases of torch before the newest did not offer on gloo yet: capability pattern → reason. No torch here.

What they accepted and got wrong is in nonconformances.toml, which knows releases too.
"""

from parproof.torch_version import lacking_before

_V_SHAPED = (
    "its pipelining opens connections by sending between the stages of one rank too,"
    " and gloo has none from a rank to itself: «Pair is not connected»"
)
_DENSE_ONLY = {
    f"functional_collectives.{op}.*.{layout}*": "gloo: «Expected input.is_contiguous() to be true»"
    for op in ("all_gather*", "reduce_scatter*", "all_to_all", "permute")
    for layout in ("transposed", "strided", "column_view")
}
LACKS: dict[str, str] = lacking_before(
    "2.12",
    {
        "collectives.all_to_all.*": "«Backend gloo does not support alltoall» (all_to_all_single works)",
        "point_to_point.functional.*": "functional collectives have no isend_inplace and irecv_inplace",
        "pipeline.zero_bubble_v.*": _V_SHAPED,
        "pipeline.dual_pipe_v.*": _V_SHAPED,
    }
    | _DENSE_ONLY,
) | lacking_before(
    "2.13",
    {
        f"functional_collectives.reduce_scatter.{op}.*": "gloo: «Only sum reduce op is supported»"
        for op in ("avg", "min", "max", "product")
    },
)
