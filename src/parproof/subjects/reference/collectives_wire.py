"""Under the reference collectives: rounds of point-to-point messages, and the order they are driven in.

An algorithm is a generator. It posts the sends and receives of one round, yields what has to be waited for, and
goes on when the round is over. A blocking call runs it to its end; an asynchronous one is run by `wait`.
"""

from __future__ import annotations

import datetime
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from parproof.errors import UsageError

Rounds = Generator[Sequence[dist.Work], None, None]
TAG = 1 << 20  # keeps collectives apart from the caller's own messages
HEADER_FIELDS = 8

OPERATIONS = (
    "all_reduce",
    "all_gather",
    "all_gather_single",
    "reduce_scatter",
    "reduce_scatter_single",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "barrier",
)
REDUCE_OPS = ("", "sum", "avg", "min", "max", "product", "band", "bor", "bxor")
_DTYPES = sorted({v for v in vars(torch).values() if isinstance(v, torch.dtype)}, key=str)


def as_bytes(x: Tensor) -> Tensor:
    """A contiguous tensor as its bytes: every dtype can travel, whatever the backend thinks of it."""
    return x.reshape(-1).view(torch.uint8)


def timeout_of(group: dist.ProcessGroup) -> datetime.timedelta | None:
    """The group's timeout; None where the backend keeps it to itself."""
    device = torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu")
    options = getattr(group._get_backend(device), "options", None)
    return getattr(options, "_timeout", None)


class Peers:
    """One rank's place in a group, and its mailbox."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.size = group.size()
        self.me = group.rank()
        self.right = (self.me + 1) % self.size
        self.left = (self.me - 1) % self.size

    def wait_for(self, works: Sequence[dist.Work]) -> None:
        """Wait within the group's timeout as it is now; without it, gloo's messages wait for the one at birth."""
        limit = timeout_of(self.group)
        for work in works:
            if limit is None:
                work.wait()
            else:
                work.wait(limit)

    def exchange(
        self, sends: Sequence[tuple[int, Tensor]], receives: Sequence[tuple[int, Tensor]]
    ) -> Sequence[dist.Work]:
        """Post contiguous tensors to and from ranks of the group; empty ones are no message."""
        posted = [(dist.isend, peer, x) for peer, x in sends] + [
            (dist.irecv, peer, x) for peer, x in receives
        ]
        ops = [
            dist.P2POp(kind, as_bytes(x), group=self.group, tag=TAG, group_peer=peer)
            for kind, peer, x in posted
            if x.numel()
        ]
        return dist.batch_isend_irecv(ops) if ops else ()


@dataclass(frozen=True)
class Signature:
    """What all ranks of a group have to agree on before data moves. shape is None where ranks may differ."""

    op: str
    reduce_op: str = ""
    root: int = -1
    dtype: torch.dtype = torch.uint8
    shape: tuple[int, ...] | None = None

    def header(self) -> Tensor:
        """Eight integers: 64 bytes for the neighbour."""
        shape = self.shape
        folded = 0
        for size in shape or ():
            folded = (folded * 1000003 + size + 1) & 0x3FFFFFFF
        numbers = [
            OPERATIONS.index(self.op),
            REDUCE_OPS.index(self.reduce_op),
            self.root,
            _DTYPES.index(self.dtype),
            -1 if shape is None else len(shape),
            folded,
            0,
            0,
        ]
        return torch.tensor(numbers, dtype=torch.int64)


_ASPECTS = ("operation", "reduce op", "root", "dtype", "shape", "shape", "", "")


def _in_words(header: list[int]) -> str:
    parts = [
        REDUCE_OPS[header[1]],
        str(_DTYPES[header[3]]).removeprefix("torch."),
        f"root {header[2]}" if header[2] >= 0 else "",
    ]
    return f"{OPERATIONS[header[0]]}({', '.join(part for part in parts if part)})"


def agreed(peers: Peers, signature: Signature) -> Rounds:
    """Compare the call with the left neighbour's: if every neighbour agrees, all ranks do."""
    if peers.size == 1:
        return
    mine = signature.header()
    theirs = torch.empty_like(mine)
    yield peers.exchange([(peers.right, mine)], [(peers.left, theirs)])
    if torch.equal(mine, theirs):
        return
    first = int((mine != theirs).nonzero()[0])
    raise UsageError(
        f"{_ASPECTS[first]} differs: this rank (rank {peers.me} of the group) calls {_in_words(mine.tolist())},"
        f" rank {peers.left} of the group calls {_in_words(theirs.tolist())}",
        expected="the same call on every rank of the group, in the same order",
    )


class Started:
    """A started operation; `wait` drives it, after those that were started before it in the same group."""

    def __init__(self, peers: Peers, rounds: Rounds, line: deque[Started]) -> None:
        self._peers = peers
        self._rounds = rounds
        self._line = line
        self._done = False
        self._posted: Sequence[dist.Work] = ()
        line.append(self)
        if line[0] is self:
            self._post()

    def _post(self) -> bool:
        """Post the next round; False when there is none."""
        try:
            self._posted = next(self._rounds)
        except StopIteration:
            return False
        return True

    def _finish(self) -> None:
        running = True
        while running:
            self._peers.wait_for(self._posted)
            self._posted = ()
            running = self._post()
        self._done = True

    def wait(self) -> None:
        """Return when the result is there."""
        while not self._done:
            first = self._line[0]
            try:
                first._finish()
            finally:
                self._line.popleft()

    def is_completed(self) -> bool:
        """True after `wait` only: nothing moves behind the caller's back."""
        return self._done


class Wire:
    """Starts algorithms, in order per group."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Started]] = defaultdict(deque)

    def start(
        self, group: dist.ProcessGroup, rounds: Callable[[Peers], Rounds], async_op: bool
    ) -> Started | None:
        """Run to the end, or hand back what will. A rank outside the group does nothing."""
        if dist.get_rank(group) < 0:
            return None
        peers = Peers(group)
        started = Started(peers, rounds(peers), self._lines[group.group_name])
        if async_op:
            return started
        started.wait()
        return None
