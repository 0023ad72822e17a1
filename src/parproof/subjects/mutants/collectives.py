"""Mutants of PAR-NCCL-COLLECTIVE, on buffers: the reference collectives with one lie each (the catalogue says which)."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from parproof.subjects.protocol import Subject
from parproof.subjects.reference.collectives import Collectives, put, rows_of, staged
from parproof.subjects.reference.collectives_wire import Peers


def _mutant(name: str) -> Subject:
    return Subject(name=name, mechanisms={"collectives": f"{__name__}:{name}"})


def _behind(x: Tensor) -> Tensor:
    """The memory that starts where x starts, whatever the strides of x."""
    return x.as_strided((x.numel(),), (1,))


def _as_if_global(root: int, group: ProcessGroup) -> int:
    """A place in the group taken for a global rank; one that is no member is left as it is."""
    if dist.get_rank(group) < 0:
        return root
    members = dist.get_process_group_ranks(group)
    return members.index(root) if root in members else root


# -- values ------------------------------------------------------------------------------------------------


class RootIsGlobal(Collectives):
    def broadcast(self, x: Tensor, root: int, group: ProcessGroup, async_op: bool = False) -> Any:
        return super().broadcast(x, _as_if_global(root, group), group, async_op)


class StridedAsContiguous(Collectives):
    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup, async_op: bool = False) -> Any:
        return super().all_reduce(_behind(x), op, group, async_op)


class AvgNotDivided(Collectives):
    def reduce_scatter_single(
        self, out: Tensor, x: Tensor, op: str, group: ProcessGroup, async_op: bool = False
    ) -> Any:
        return super().reduce_scatter_single(out, x, "sum" if op == "avg" else op, group, async_op)


class AvgByNumel(Collectives):
    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup, async_op: bool = False) -> Any:
        if op != "avg" or async_op:
            return super().all_reduce(x, op, group, async_op)
        super().all_reduce(x, "sum", group)
        x.copy_(torch.div(x, max(1, x.numel()), rounding_mode=None if x.is_floating_point() else "trunc"))
        return None


class IntAvgInFloat(Collectives):
    def reduce(self, x: Tensor, op: str, root: int, group: ProcessGroup, async_op: bool = False) -> Any:
        if op != "avg" or x.is_floating_point():
            return super().reduce(x, op, root, group, async_op)
        wide = x.float()
        super().reduce(wide, op, root, group)
        if dist.get_rank(group) == root:
            x.copy_(wide)
        return None


class GatherReversed(Collectives):
    def all_gather(self, outs: list[Tensor], x: Tensor, group: ProcessGroup, async_op: bool = False) -> Any:
        return super().all_gather(outs[::-1], x, group, async_op)


class OwnChunkTwice(Collectives):
    def all_gather(self, outs: list[Tensor], x: Tensor, group: ProcessGroup, async_op: bool = False) -> Any:
        found = super().all_gather(outs, x, group, async_op)
        if dist.get_rank(group) >= 0:
            outs[Peers(group).right].copy_(x)
        return found


class TailDropped(Collectives):
    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup, async_op: bool = False) -> Any:
        if dist.get_rank(group) < 0 or async_op:
            return super().all_reduce(x, op, group, async_op)
        flat = staged(x)
        super().all_reduce(flat[: x.numel() // group.size() * group.size()], op, group)
        put(x, flat)
        return None


class ZeroRowsCrash(Collectives):
    def all_to_all_single(
        self,
        out: Tensor,
        x: Tensor,
        out_splits: list[int] | None,
        in_splits: list[int] | None,
        group: ProcessGroup,
        async_op: bool = False,
    ) -> Any:
        for rows in out_splits or ():
            out[:rows].reshape(rows, -1)  # no width can be inferred from nothing
        return super().all_to_all_single(out, x, out_splits, in_splits, group, async_op)


class OwnBlockFirst(Collectives):
    def all_to_all_single(
        self,
        out: Tensor,
        x: Tensor,
        out_splits: list[int] | None,
        in_splits: list[int] | None,
        group: ProcessGroup,
        async_op: bool = False,
    ) -> Any:
        found = super().all_to_all_single(out, x, out_splits, in_splits, group, async_op)
        if dist.get_rank(group) >= 0:
            blocks = list(rows_of(out.clone(), out_splits, group.size()))
            out.copy_(torch.cat([blocks.pop(group.rank()), *blocks]))
        return found


class ProductAsSum(Collectives):
    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup, async_op: bool = False) -> Any:
        return super().all_reduce(x, "sum" if op == "product" else op, group, async_op)


class HalfInBfloat16(Collectives):
    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup, async_op: bool = False) -> Any:
        if x.dtype != torch.float16 or async_op:
            return super().all_reduce(x, op, group, async_op)
        narrow = x.bfloat16()
        super().all_reduce(narrow, op, group)
        x.copy_(narrow)
        return None


class ThroughFloat32(Collectives):
    def all_gather_single(self, out: Tensor, x: Tensor, group: ProcessGroup, async_op: bool = False) -> Any:
        if x.dtype not in (torch.float64, torch.int64):
            return super().all_gather_single(out, x, group, async_op)
        narrow = out.float()
        found = super().all_gather_single(narrow, x.float(), group, async_op)
        out.copy_(narrow)
        return found


class BoolAsBytes(Collectives):
    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup, async_op: bool = False) -> Any:
        seen = x.view(torch.uint8) if x.dtype == torch.bool and op == "sum" else x
        return super().all_reduce(seen, op, group, async_op)


class OverflowStaysFinite(Collectives):
    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup, async_op: bool = False) -> Any:
        found = super().all_reduce(x, op, group, async_op)
        if x.dtype == torch.float16:
            x.clamp_(-65504, 65504)
        return found


# -- what has to stay as it is -------------------------------------------------------------------------------


class ReduceEverywhere(Collectives):
    def reduce(self, x: Tensor, op: str, root: int, group: ProcessGroup, async_op: bool = False) -> Any:
        return self.all_reduce(x, op, group, async_op)


class InputIsScratch(Collectives):
    def reduce_scatter(
        self, out: Tensor, xs: list[Tensor], op: str, group: ProcessGroup, async_op: bool = False
    ) -> Any:
        found = super().reduce_scatter(out, xs, op, group, async_op)
        if dist.get_rank(group) >= 0:
            xs[group.rank()].copy_(out)
        return found


class OutsiderIsCleared(Collectives):
    def gather(
        self, outs: list[Tensor] | None, x: Tensor, root: int, group: ProcessGroup, async_op: bool = False
    ) -> Any:
        if dist.get_rank(group) < 0:
            for out in outs or ():
                out.zero_()
        return super().gather(outs, x, root, group, async_op)


root_is_global = _mutant("RootIsGlobal")
strided_as_contiguous = _mutant("StridedAsContiguous")
avg_not_divided = _mutant("AvgNotDivided")
avg_by_numel = _mutant("AvgByNumel")
int_avg_in_float = _mutant("IntAvgInFloat")
gather_reversed = _mutant("GatherReversed")
own_chunk_twice = _mutant("OwnChunkTwice")
tail_dropped = _mutant("TailDropped")
zero_rows_crash = _mutant("ZeroRowsCrash")
own_block_first = _mutant("OwnBlockFirst")
product_as_sum = _mutant("ProductAsSum")
half_in_bfloat16 = _mutant("HalfInBfloat16")
through_float32 = _mutant("ThroughFloat32")
bool_as_bytes = _mutant("BoolAsBytes")
overflow_stays_finite = _mutant("OverflowStaysFinite")
reduce_everywhere = _mutant("ReduceEverywhere")
input_is_scratch = _mutant("InputIsScratch")
outsider_is_cleared = _mutant("OutsiderIsCleared")
