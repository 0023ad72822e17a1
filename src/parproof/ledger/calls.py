"""How to read each communication operator of the dispatcher: one table, by qualified name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True)
class SeenCall:
    """The facts of one call, before the group's members are looked up."""

    op: str
    form: str
    group: Callable[[], dist.ProcessGroup]
    group_name: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    in_bytes: int
    out_bytes: int
    reduce_op: str | None
    group_peer: int | None
    tag: int | None
    is_async: bool


@dataclass(frozen=True)
class Call:
    """Which arguments of an operator hold what."""

    op: str
    form: str
    inputs: str | None
    outputs: str | None
    peer: str | None = None
    functional: bool = False

    def read(self, named: dict[str, Any]) -> Iterator[SeenCall]:
        """The call as facts; a batch gives several."""
        group, name = _group(named)
        if self.form == "batch":
            for word, peer, tag, tensor in zip(
                named["op_list"], named["peer_list"], named["tag_list"], named["tensors"], strict=True
            ):
                op = "send" if "send" in word else "recv"
                sent, received = ([tensor], []) if op == "send" else ([], [tensor])
                yield self._seen(op, group, name, named, sent, received, peer, tag)
            return
        inputs = tensors_in(named[self.inputs]) if self.inputs else []
        outputs = tensors_in(named[self.outputs]) if self.outputs else []
        peer = named[self.peer] if self.peer else (-1 if self.op == "recv" else None)
        yield self._seen(self.op, group, name, named, inputs, outputs, peer, named.get("tag"))

    def _seen(
        self,
        op: str,
        group: Callable[[], dist.ProcessGroup],
        name: str,
        named: dict[str, Any],
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        peer: int | None,
        tag: int | None,
    ) -> SeenCall:
        shown = inputs or outputs
        return SeenCall(
            op=op,
            form=self.form,
            group=group,
            group_name=name,
            dtype=str(shown[0].dtype).removeprefix("torch.") if shown else "none",
            shapes=tuple(tuple(t.shape) for t in shown),
            in_bytes=_nbytes(inputs),
            out_bytes=_nbytes(outputs),
            reduce_op=_reduce_op(named.get("reduce_op")),
            group_peer=peer,
            tag=tag,
            is_async=self.functional or bool(named.get("async_op", op in ("send", "recv"))),
        )


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of a nested argument, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _nbytes(tensors: list[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _group(named: dict[str, Any]) -> tuple[Callable[[], dist.ProcessGroup], str]:
    raw = named.get("process_group", named.get("group_name"))
    if isinstance(raw, str):
        name = raw
        return lambda: dist.distributed_c10d._resolve_process_group(name), name  # type: ignore[arg-type]
    group = raw if isinstance(raw, dist.ProcessGroup) else dist.ProcessGroup.unbox(raw)
    return lambda: group, group.group_name


def _reduce_op(raw: Any) -> str | None:
    if raw is None:
        return None
    if isinstance(raw, str):
        return raw.lower()
    if isinstance(raw, torch.ScriptObject):
        return _REDUCE_OPS[raw.op()]
    return str(getattr(raw, "op", raw)).rsplit(".", 1)[-1].lower()


# The order of torch's RedOpType, which a boxed ReduceOp gives as a number.
_REDUCE_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")

_C10D = {
    "allreduce_": Call("all_reduce", "single", "tensors", "tensors"),
    "allreduce_coalesced_": Call("all_reduce", "coalesced", "tensors", "tensors"),
    "allgather_": Call("all_gather", "list", "input_tensors", "output_tensors"),
    "_allgather_base_": Call("all_gather", "single", "input_tensor", "output_tensor"),
    "allgather_coalesced_": Call("all_gather", "coalesced", "input_list", "output_lists"),
    "allgather_into_tensor_coalesced_": Call("all_gather", "coalesced", "inputs", "outputs"),
    "reduce_scatter_": Call("reduce_scatter", "list", "input_tensors", "output_tensors"),
    "_reduce_scatter_base_": Call("reduce_scatter", "single", "input_tensor", "output_tensor"),
    "reduce_scatter_tensor_coalesced_": Call("reduce_scatter", "coalesced", "inputs", "outputs"),
    "alltoall_": Call("all_to_all", "list", "input_tensors", "output_tensors"),
    "alltoall_base_": Call("all_to_all", "single", "input", "output"),
    "broadcast_": Call("broadcast", "single", "tensors", "tensors", "root_rank"),
    "reduce_": Call("reduce", "single", "tensors", "tensors", "root_rank"),
    "gather_": Call("gather", "list", "input_tensors", "output_tensors", "root_rank"),
    "scatter_": Call("scatter", "list", "input_tensors", "output_tensors", "root_rank"),
    "send": Call("send", "single", "tensors", None, "dst"),
    "recv_": Call("recv", "single", None, "tensors", "src"),
    "recv_any_source_": Call("recv", "any_source", None, "tensors"),
    "barrier": Call("barrier", "single", None, None),
    "monitored_barrier_": Call("monitored_barrier", "single", None, None),
}
_FUNCTIONAL = {
    "all_reduce": Call("all_reduce", "functional", "input", None, functional=True),
    "all_reduce_": Call("all_reduce", "functional", "input", None, functional=True),
    "all_reduce_coalesced": Call("all_reduce", "functional_coalesced", "inputs", None, functional=True),
    "all_reduce_coalesced_": Call("all_reduce", "functional_coalesced", "inputs", None, functional=True),
    "all_gather_into_tensor": Call("all_gather", "functional", "input", None, functional=True),
    "all_gather_into_tensor_out": Call("all_gather", "functional", "input", None, functional=True),
    "all_gather_into_tensor_coalesced": Call(
        "all_gather", "functional_coalesced", "inputs", None, functional=True
    ),
    "reduce_scatter_tensor": Call("reduce_scatter", "functional", "input", None, functional=True),
    "reduce_scatter_tensor_out": Call("reduce_scatter", "functional", "input", None, functional=True),
    "reduce_scatter_tensor_coalesced": Call(
        "reduce_scatter", "functional_coalesced", "inputs", None, functional=True
    ),
    "all_to_all_single": Call("all_to_all", "functional", "input", None, functional=True),
    "broadcast": Call("broadcast", "functional", "input", None, "src", functional=True),
    "broadcast_": Call("broadcast", "functional", "input", None, "src", functional=True),
    "isend": Call("send", "functional", "tensor", None, "dst", functional=True),
    "irecv": Call("recv", "functional", None, "tensor", "src", functional=True),
    "batch_p2p_ops": Call("batch", "batch", None, None, functional=True),
}
CALLS: dict[str, Call] = (
    {f"c10d::{name}": call for name, call in _C10D.items()}
    | {f"_c10d_functional::{name}": call for name, call in _FUNCTIONAL.items()}
    | {"_dtensor::shard_dim_alltoall": Call("all_to_all", "functional", "input", None, functional=True)}
)
