"""torch.distributed's point-to-point and object operations, with peers given as ranks of the group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed import _functional_collectives as functional

from parproof.subjects.collectives_protocol import Transfer


class PointToPoint:
    """See parproof.subjects.collectives_protocol."""

    def send(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> None:
        """dist.send."""
        dist.send(x, group=group, tag=tag, group_dst=peer)

    def recv(self, x: Tensor, peer: int | None, tag: int, group: ProcessGroup) -> int:
        """dist.recv; it answers with a global rank."""
        return dist.get_group_rank(group, dist.recv(x, group=group, tag=tag, group_src=peer))

    def isend(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> Any:
        """dist.isend."""
        return dist.isend(x, group=group, tag=tag, group_dst=peer)

    def irecv(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> Any:
        """dist.irecv."""
        return dist.irecv(x, group=group, tag=tag, group_src=peer)

    def batch(self, transfers: Sequence[Transfer], group: ProcessGroup) -> Sequence[Any]:
        """dist.batch_isend_irecv."""
        ops = [
            dist.P2POp(dist.isend if word == "send" else dist.irecv, x, group=group, group_peer=peer)
            for word, x, peer in transfers
        ]
        return list(dist.batch_isend_irecv(ops))

    def exchange(
        self, x: Tensor, room: Tensor, to: int, source: int, tag: int, group: ProcessGroup
    ) -> Tensor:
        """funcol.isend_inplace and irecv_inplace, which take global ranks."""
        left = functional.isend_inplace(x, dist.get_global_rank(group, to), tag, group)
        came = functional.irecv_inplace(room, dist.get_global_rank(group, source), tag, group)
        functional.wait_tensor(left)
        arrived: Tensor = functional.wait_tensor(came)
        return arrived


class ObjectCollectives:
    """See parproof.subjects.collectives_protocol."""

    algorithms: Mapping[str, str] = MappingProxyType({"objects": "single_call"})

    def all_gather_object(self, value: Any, group: ProcessGroup) -> list[Any]:
        """dist.all_gather_object."""
        found: list[Any] = [None] * group.size()
        dist.all_gather_object(found, value, group=group)
        return found

    def gather_object(self, value: Any, root: int, group: ProcessGroup) -> list[Any] | None:
        """dist.gather_object."""
        found: list[Any] | None = [None] * group.size() if group.rank() == root else None
        dist.gather_object(value, found, group=group, group_dst=root)
        return found

    def broadcast_objects(
        self, values: list[Any] | None, count: int, root: int, group: ProcessGroup
    ) -> list[Any]:
        """dist.broadcast_object_list."""
        found = list(values) if values is not None else [None] * count
        dist.broadcast_object_list(found, group=group, group_src=root)
        return found

    def scatter_object(self, values: list[Any] | None, root: int, group: ProcessGroup) -> Any:
        """dist.scatter_object_list."""
        found: list[Any] = [None]
        dist.scatter_object_list(found, values, group=group, group_src=root)
        return found[0]

    def send_objects(self, values: list[Any], peer: int, group: ProcessGroup) -> None:
        """dist.send_object_list."""
        dist.send_object_list(values, group=group, group_dst=peer)

    def recv_objects(self, count: int, peer: int, group: ProcessGroup) -> list[Any]:
        """dist.recv_object_list."""
        found: list[Any] = [None] * count
        dist.recv_object_list(found, group=group, group_src=peer)
        return found
