"""The interface of the collectives experiment: six mechanisms, each of which a subject may leave out.

Legend   p = ranks in the group; roots and peers are ranks *of the group*, 0 … p−1, never global ranks.
         A rank outside the group may call: nothing happens, its buffers stay as they are.
Layouts  any strides; memory of the base tensor outside the given view stays as it is.
Reduce ops  sum, avg, min, max, product, and on integers and bool band, bor, bxor. Integer avg truncates.
            On bool, sum and max are «or», product and min are «and».
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from torch import Tensor
from torch.distributed import ProcessGroup


class Handle(Protocol):
    """A started operation. Its buffers belong to it until `wait` returns."""

    def wait(self) -> Any:
        """Block until the buffers of this rank hold the result."""
        ...

    def is_completed(self) -> bool:
        """True after `wait`; before, it may be False although the data has arrived, and is never True unless it has."""
        ...


class Collectives(Protocol):
    """Mechanism `collectives`: operations on buffers that the caller owns.

    With async_op a Handle is returned, else None after completion.
    """

    algorithms: Mapping[str, str]
    """op → «single_call» (one call of torch's operation) or the name of a point-to-point algorithm in
    parproof.cost.collective_traffic, from which its ledger is predicted."""

    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup, async_op: bool = False) -> Handle | None:
        """x becomes the reduction of all x."""
        ...

    def all_gather(
        self, outs: list[Tensor], x: Tensor, group: ProcessGroup, async_op: bool = False
    ) -> Handle | None:
        """outs[j] becomes the x of rank j."""
        ...

    def all_gather_single(
        self, out: Tensor, x: Tensor, group: ProcessGroup, async_op: bool = False
    ) -> Handle | None:
        """out [p*n, …] becomes the concatenation of all x [n, …]."""
        ...

    def reduce_scatter(
        self, out: Tensor, xs: list[Tensor], op: str, group: ProcessGroup, async_op: bool = False
    ) -> Handle | None:
        """out becomes the reduction of xs[me] of all ranks."""
        ...

    def reduce_scatter_single(
        self, out: Tensor, x: Tensor, op: str, group: ProcessGroup, async_op: bool = False
    ) -> Handle | None:
        """out [n, …] becomes block `me` of the reduction of all x [p*n, …]."""
        ...

    def all_to_all(
        self, outs: list[Tensor], xs: list[Tensor], group: ProcessGroup, async_op: bool = False
    ) -> Handle | None:
        """outs[j] becomes xs[me] of rank j; shapes may differ per pair."""
        ...

    def all_to_all_single(
        self,
        out: Tensor,
        x: Tensor,
        out_splits: list[int] | None,
        in_splits: list[int] | None,
        group: ProcessGroup,
        async_op: bool = False,
    ) -> Handle | None:
        """Rows of x go to the ranks in turn, in_splits[j] of them to rank j; None: equal parts."""
        ...

    def broadcast(self, x: Tensor, root: int, group: ProcessGroup, async_op: bool = False) -> Handle | None:
        """x becomes the root's x."""
        ...

    def reduce(
        self, x: Tensor, op: str, root: int, group: ProcessGroup, async_op: bool = False
    ) -> Handle | None:
        """The root's x becomes the reduction of all x; the others keep theirs."""
        ...

    def scatter(
        self, out: Tensor, xs: list[Tensor] | None, root: int, group: ProcessGroup, async_op: bool = False
    ) -> Handle | None:
        """out becomes the root's xs[me]; xs is None on the others."""
        ...

    def gather(
        self, outs: list[Tensor] | None, x: Tensor, root: int, group: ProcessGroup, async_op: bool = False
    ) -> Handle | None:
        """The root's outs[j] becomes the x of rank j; outs is None on the others."""
        ...

    def barrier(self, group: ProcessGroup, async_op: bool = False) -> Handle | None:
        """No rank leaves before every rank has come."""
        ...


BatchedCall = tuple[str, tuple[Any, ...]]
"""One of several calls: all_reduce, all_gather_single or reduce_scatter_single, and its arguments before the group."""


class CoalescedCollectives(Protocol):
    """Mechanism `coalesced_collectives`: several tensors of one dtype in one call, or several calls as one.

    With async_op a Handle for all of them is returned, else None after completion.
    """

    algorithms: Mapping[str, str]
    """As in Collectives, and «coalesced» → one_call or one_by_one."""

    def all_reduce_coalesced(
        self, xs: list[Tensor], op: str, group: ProcessGroup, async_op: bool = False
    ) -> Handle | None:
        """Each of xs becomes its reduction."""
        ...

    def all_gather_coalesced(
        self, outs: list[list[Tensor]], xs: list[Tensor], group: ProcessGroup, async_op: bool = False
    ) -> Handle | None:
        """outs[j][k] becomes the xs[k] of rank j."""
        ...

    def together(
        self, calls: Sequence[BatchedCall], group: ProcessGroup, async_op: bool = False
    ) -> Handle | None:
        """The calls, as if one after the other."""
        ...


Transfer = tuple[Literal["send", "recv"], Tensor, int]
"""One entry of a batch: direction, buffer, peer."""


class PointToPoint(Protocol):
    """Mechanism `point_to_point`. Messages of one pair and tag keep their order; tags keep them apart."""

    def send(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> None:
        """May wait for the receiver."""
        ...

    def recv(self, x: Tensor, peer: int | None, tag: int, group: ProcessGroup) -> int:
        """Fill x; None takes from any source. Returns the sender's rank in the group."""
        ...

    def isend(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> Handle:
        """Start a send."""
        ...

    def irecv(self, x: Tensor, peer: int, tag: int, group: ProcessGroup) -> Handle:
        """Start a receive."""
        ...

    def batch(self, transfers: Sequence[Transfer], group: ProcessGroup) -> Sequence[Handle]:
        """Start all of them; their order does not matter for progress."""
        ...

    def exchange(
        self, x: Tensor, room: Tensor, to: int, source: int, tag: int, group: ProcessGroup
    ) -> Tensor:
        """The functional form: x goes to `to`; gives back what came from `source`, for which `room` may be used."""
        ...


class ObjectCollectives(Protocol):
    """Mechanism `object_collectives`: anything that can be pickled."""

    algorithms: Mapping[str, str]
    """«objects» → single_call (torch's own object operations) or lengths_first (a collective of the 8-byte lengths,
    then one of the pickles), and for the latter, as in Collectives, how these collectives are carried."""

    def all_gather_object(self, value: Any, group: ProcessGroup) -> list[Any]:
        """All values, in group order."""
        ...

    def gather_object(self, value: Any, root: int, group: ProcessGroup) -> list[Any] | None:
        """All values at the root, None elsewhere."""
        ...

    def broadcast_objects(
        self, values: list[Any] | None, count: int, root: int, group: ProcessGroup
    ) -> list[Any]:
        """The root's `count` values; the others hand in None."""
        ...

    def scatter_object(self, values: list[Any] | None, root: int, group: ProcessGroup) -> Any:
        """The root's values[me]."""
        ...

    def send_objects(self, values: list[Any], peer: int, group: ProcessGroup) -> None:
        """Send to one rank."""
        ...

    def recv_objects(self, count: int, peer: int, group: ProcessGroup) -> list[Any]:
        """Receive from one rank."""
        ...


class AutogradCollectives(Protocol):
    """Mechanism `autograd_collectives`: new tensors out, inputs untouched, differentiable. torch.distributed.nn has it.

    The gradient is that of the *sum of all ranks' losses* with respect to this rank's input. Ranks that hold the same
    minimum or maximum share its gradient in equal parts.
    """

    algorithms: Mapping[str, str]
    """As in Collectives, for the operations on buffers that forms and gradients are made of, and «coalesced» →
    one_call or one_by_one. Gradients: all_reduce by all_reduce, all_gather by reduce_scatter and the other way
    round, all_to_all and permute by all_to_all, broadcast by reduce and the other way round, gather by scatter and the
    other way round; beside it, for min and max an all_reduce of who holds them (reduce_scatter: after an all_gather of
    the results, reduce: after a broadcast of it), for product an all_gather of the inputs. Where a gradient goes another
    way, «OP.gradient» states it; «nonlinear» → as_sums says that there is nothing beside (and no right gradient)."""

    def all_reduce(self, x: Tensor, op: str, group: ProcessGroup) -> Tensor:
        """The reduction of all x."""
        ...

    def all_gather(self, x: Tensor, dim: int, group: ProcessGroup) -> Tensor:
        """All x, concatenated along dim."""
        ...

    def reduce_scatter(self, x: Tensor, op: str, dim: int, group: ProcessGroup) -> Tensor:
        """Part `me` along dim of the reduction of all x."""
        ...

    def all_to_all(
        self, x: Tensor, out_splits: list[int] | None, in_splits: list[int] | None, group: ProcessGroup
    ) -> Tensor:
        """As Collectives.all_to_all_single."""
        ...

    def broadcast(self, x: Tensor, root: int, group: ProcessGroup) -> Tensor:
        """The root's x."""
        ...

    def reduce(self, x: Tensor, op: str, root: int, group: ProcessGroup) -> Tensor:
        """The reduction of all x at the root. Elsewhere what is returned, and its gradient, mean nothing."""
        ...

    def gather(self, x: Tensor, root: int, group: ProcessGroup) -> Tensor:
        """All x at the root, concatenated along dim 0. Elsewhere what is returned, and its gradient, mean nothing."""
        ...

    def scatter(self, x: Tensor, root: int, group: ProcessGroup) -> Tensor:
        """Part `me` along dim 0 of the root's x; those of the others have its shape and are not read."""
        ...

    def all_gather_single(self, x: Tensor, group: ProcessGroup) -> Tensor:
        """All x, concatenated along dim 0, as one tensor from the start."""
        ...

    def all_to_all_list(self, xs: list[Tensor], group: ProcessGroup) -> Sequence[Tensor]:
        """The xs[me] of each rank; all have one shape."""
        ...


class FunctionalCollectives(AutogradCollectives, Protocol):
    """Mechanism `functional_collectives`, as torch.distributed has it in its functional collectives.

    Asked for are all_reduce, all_gather, reduce_scatter, all_to_all and broadcast of the above, and these.
    """

    def permute(self, x: Tensor, targets: list[int], group: ProcessGroup) -> Tensor:
        """The x of the rank j with targets[j] == me."""
        ...

    def all_reduce_coalesced(self, xs: list[Tensor], op: str, group: ProcessGroup) -> list[Tensor]:
        """all_reduce of each."""
        ...

    def all_gather_coalesced(self, xs: list[Tensor], group: ProcessGroup) -> list[Tensor]:
        """all_gather along dim 0 of each."""
        ...

    def reduce_scatter_coalesced(self, xs: list[Tensor], op: str, group: ProcessGroup) -> list[Tensor]:
        """reduce_scatter along dim 0 of each."""
        ...
