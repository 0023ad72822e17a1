"""The communication operators of the dispatcher: one table, by qualified name."""

from __future__ import annotations

from typing import Any

import torch

from parproof.ledger.calls import Call

_C10D = {
    "allreduce_": Call("all_reduce", "single", "tensors", "tensors"),
    "allreduce_coalesced_": Call("all_reduce", "coalesced", "tensors", "tensors"),
    "allgather_": Call("all_gather", "list", "input_tensors", "output_tensors", parts="out"),
    "_allgather_base_": Call("all_gather", "single", "input_tensor", "output_tensor"),
    "allgather_coalesced_": Call("all_gather", "coalesced", "input_list", "output_lists", parts="out"),
    "allgather_into_tensor_coalesced_": Call("all_gather", "coalesced", "inputs", "outputs"),
    "reduce_scatter_": Call("reduce_scatter", "list", "input_tensors", "output_tensors", parts="in"),
    "_reduce_scatter_base_": Call("reduce_scatter", "single", "input_tensor", "output_tensor"),
    "reduce_scatter_tensor_coalesced_": Call("reduce_scatter", "coalesced", "inputs", "outputs"),
    "alltoall_": Call("all_to_all", "list", "input_tensors", "output_tensors", parts="both"),
    "alltoall_base_": Call("all_to_all", "single", "input", "output", splits=True),
    "broadcast_": Call("broadcast", "single", "tensors", "tensors", "root_rank"),
    "reduce_": Call("reduce", "single", "tensors", "tensors", "root_rank"),
    "gather_": Call("gather", "list", "input_tensors", "output_tensors", "root_rank", parts="out"),
    "scatter_": Call("scatter", "list", "input_tensors", "output_tensors", "root_rank", parts="in"),
    "send": Call("send", "single", "tensors", None, "dst"),
    "recv_": Call("recv", "single", None, "tensors", "src"),
    "recv_any_source_": Call("recv", "any_source", None, "tensors"),
    "barrier": Call("barrier", "single", None, None),
    "monitored_barrier_": Call("monitored_barrier", "single", None, None),
}


def _functional(op: str, inputs: str | None, coalesced: bool = False, **more: Any) -> Call:
    form = "functional_coalesced" if coalesced else "functional"
    return Call(op, form, inputs, None, functional=True, **more)


_FUNCTIONAL = {
    "all_reduce": _functional("all_reduce", "input"),
    "all_reduce_": _functional("all_reduce", "input"),
    "all_reduce_coalesced": _functional("all_reduce", "inputs", coalesced=True),
    "all_reduce_coalesced_": _functional("all_reduce", "inputs", coalesced=True),
    "all_gather_into_tensor": _functional("all_gather", "input"),
    "all_gather_into_tensor_out": _functional("all_gather", "input"),
    "all_gather_into_tensor_coalesced": _functional("all_gather", "inputs", coalesced=True),
    "reduce_scatter_tensor": _functional("reduce_scatter", "input"),
    "reduce_scatter_tensor_out": _functional("reduce_scatter", "input"),
    "reduce_scatter_tensor_coalesced": _functional("reduce_scatter", "inputs", coalesced=True),
    "all_to_all_single": _functional("all_to_all", "input", splits=True),
    "broadcast": _functional("broadcast", "input", peer="src"),
    "broadcast_": _functional("broadcast", "input", peer="src"),
    "isend": _functional("send", "tensor", peer="dst"),
    "irecv": Call("recv", "functional", None, "tensor", "src", functional=True),
    "batch_p2p_ops": Call("batch", "batch", None, None, functional=True),
}

CALLS: dict[str, Call] = (
    {f"c10d::{name}": call for name, call in _C10D.items()}
    | {f"_c10d_functional::{name}": call for name, call in _FUNCTIONAL.items()}
    | {"_dtensor::shard_dim_alltoall": _functional("all_to_all", "input")}
)

# Operators that only wait, wrap or look a group up, or that torch takes apart into operators above.
SILENT: frozenset[str] = frozenset(
    {
        "c10d::check_for_nan",
        "_c10d_functional::wait_tensor",
        "_c10d_functional::_wrap_tensor_autograd",
        "_dtensor::mesh_get_process_group",
        "c10d_functional::wait_tensor",
    }
    | {f"_c10d_functional_autograd::{name}" for name in _FUNCTIONAL}
    | {f"c10d_functional::{name}" for name in _FUNCTIONAL}
)

_NAMESPACES = frozenset(
    {"c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "_dtensor"}
)


def communication_operators() -> list[Any]:
    """Every operator of torch's communication namespaces that is registered and may send.

    One that the table does not know is not passed over: it gives rows with its own name as op, which no prediction
    contains.
    """
    names = sorted(torch._C._dispatch_get_all_op_names())
    return [
        _operator(name)
        for name in names
        if name.split("::")[0] in _NAMESPACES and _packet(name) not in SILENT
    ]


def call_of(name: str) -> Call:
    """How to read the operator of this name (with or without its overload's)."""
    return CALLS.get(_packet(name), Call(_packet(name), "unknown", None, None))


def _packet(name: str) -> str:
    return name.partition(".")[0]


def _operator(name: str) -> Any:
    space, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, space), packet), overload or "default")
