"""Collectives that torch does not provide on gloo: capability pattern → reason. No torch here.

What torch refuses with an error is here. What it accepts and gets wrong is in nonconformances.toml.
"""

LACKS: dict[str, str] = {
    "collectives.*.int16.*": "gloo has no int16: «Invalid scalar type»",
    "collectives.*.avg.int*": "gloo has no integer mean: «result type Float can't be cast»",
    "collectives.*.avg.uint8.*": "gloo has no integer mean: «result type Float can't be cast»",
    "collectives.all_to_all.uneven.*": "gloo's list form demands equal shapes",
    "collectives.all_to_all.zeros.*": "gloo's list form demands equal shapes",
    "collectives.all_to_all_single.*.transposed": "«Tensors must be contiguous»",
    "collectives.all_to_all_single.*.strided": "«Tensors must be contiguous»",
    "collectives.all_to_all_single.*.column_view": "«Tensors must be contiguous»",
    "collectives.all_gather_single.*.zero_dim": "«invalid tensor size at index 0 (expected (), got (1))»",
    "autograd_collectives.all_to_all.*.column_view*": "«Tensors must be contiguous»",
    "autograd_collectives.all_gather_single.*.gradient": "on gloo: «Backend not supported!»",
    "coalesced_collectives.*.int16.*": "gloo has no int16: «Invalid scalar type»",
    "coalesced_collectives.*.avg.int*": "gloo has no integer mean: «result type Float can't be cast»",
    "coalesced_collectives.*.avg.uint8.*": "gloo has no integer mean: «result type Float can't be cast»",
    "coalesced_collectives.mixed_operations.*": "«Coalescing manager requires all collectives to be the same type»",
    "functional_collectives.*.int16.*": "gloo has no int16: «Invalid scalar type»",
    "functional_collectives.*.avg.*.gradient": "«backward only supports 'sum' reduction»",
    "functional_collectives.*.min.*.gradient": "«backward only supports 'sum' reduction»",
    "functional_collectives.*.max.*.gradient": "«backward only supports 'sum' reduction»",
    "functional_collectives.*.product.*.gradient": "«backward only supports 'sum' reduction»",
    "point_to_point.any_source.zero_size": "gloo takes no empty message from any source: «offset < this->size»",
    "point_to_point.*.transposed": "«input tensor has to be contiguous»",
    "point_to_point.*.strided": "«input tensor has to be contiguous»",
    "point_to_point.*.column_view": "«input tensor has to be contiguous»",
}
