"""How to read the arguments of a communication operator: from a dispatched call to its facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _resolve_process_group


@dataclass
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
    in_parts: tuple[int, ...] = ()
    out_parts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Call:
    """Which arguments of an operator hold what.

    parts   «in», «out» or «both»: these lists hold one entry for each member of the group
    splits  True when arguments input_split_sizes and output_split_sizes say how dimension 0 is cut
    """

    op: str
    form: str
    inputs: str | None
    outputs: str | None
    peer: str | None = None
    functional: bool = False
    parts: str = ""
    splits: bool = False

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
        if self.form == "unknown":
            yield self._seen(self.op, group, name, named, tensors_in(list(named.values())), [], None, None)
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
        in_parts, out_parts = self._parts(named, group)
        return SeenCall(
            op=op,
            form=self.form,
            group=group,
            group_name=name,
            dtype="+".join(sorted({str(t.dtype).removeprefix("torch.") for t in shown})) or "none",
            shapes=tuple(tuple(t.shape) for t in shown),
            in_bytes=num_bytes(inputs),
            out_bytes=num_bytes(outputs),
            reduce_op=_reduce_op(named.get("reduce_op")),
            group_peer=peer,
            tag=tag,
            # Absent means True: the dispatcher drops arguments that equal the operator's default.
            is_async=op != "monitored_barrier" and bool(named.get("async_op", True)),
            in_parts=in_parts,
            out_parts=out_parts,
        )

    def _parts(
        self, named: dict[str, Any], group: Callable[[], dist.ProcessGroup]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Bytes for each member and from each member, where the call tells them apart."""
        if self.splits:
            tensor = tensors_in(named[self.inputs or ""])[0]
            sent = _split(tensor, named["input_split_sizes"], group)
            target = tensors_in(named[self.outputs])[0] if self.outputs else tensor
            return sent, _split(target, named["output_split_sizes"], group)
        return (
            _per_member(named[self.inputs or ""]) if self.parts in ("in", "both") else (),
            _per_member(named[self.outputs or ""]) if self.parts in ("out", "both") else (),
        )


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of a nested argument, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_in(part)]
    return []


def num_bytes(tensors: list[torch.Tensor]) -> int:
    """Payload of these tensors."""
    return sum(t.numel() * t.element_size() for t in tensors)


def _per_member(value: Any) -> tuple[int, ...]:
    """[[a, b]] (one list for the one device) and [a, b] alike; a coalesced call gives a list per member."""
    if len(value) == 1 and isinstance(value[0], (list, tuple)):
        value = value[0]
    return tuple(num_bytes(tensors_in(part)) for part in value)


def _split(
    tensor: torch.Tensor, sizes: list[int] | None, group: Callable[[], dist.ProcessGroup]
) -> tuple[int, ...]:
    if not sizes:
        world = group().size()
        return (tensor.numel() * tensor.element_size() // world,) * world
    row_bytes = tensor.element_size() * math.prod(tensor.shape[1:])
    return tuple(int(size) * row_bytes for size in sizes)


def _group(named: dict[str, Any]) -> tuple[Callable[[], dist.ProcessGroup], str]:
    raw: Any = named.get("process_group", named.get("group_name"))
    if raw is None:
        raw = dist.group.WORLD
    if isinstance(raw, str):
        name: Any = raw
        return lambda: _resolve_process_group(name), name
    group = raw if isinstance(raw, dist.ProcessGroup) else dist.ProcessGroup.unbox(raw)
    return lambda: group, group.group_name


def _reduce_op(raw: Any) -> str | None:
    if raw is None:
        return None
    if isinstance(raw, str):
        return raw.lower()
    if type(raw) is torch.ScriptObject:
        return _REDUCE_OPS[raw.op()]  # type: ignore[attr-defined]
    return str(getattr(raw, "op", raw)).rsplit(".", 1)[-1].lower()


# The order of torch's RedOpType, which a boxed ReduceOp gives as a number.
_REDUCE_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")
