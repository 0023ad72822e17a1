"""Sends and receives of a pair of ranks, matched in order by group and tag. No torch here."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from parproof.ledger.agreement import Disagreement
from parproof.ledger.rows import Row

ANY_SOURCE = -1


class _Channel(NamedTuple):
    """Messages of one channel arrive in the order they were sent."""

    group: str
    members: tuple[int, ...]
    source: int
    target: int
    tag: int


def unmatched(ledgers: Mapping[int, Sequence[Row]]) -> list[Disagreement]:
    """Every send needs a receive of the same channel, size and dtype; any-source receives take what is left.

    Where a rank receives from any source, which message met which receive is not in the ledger, so that only
    numbers are compared there.
    """
    sends, receives, open_receives = _channels(ledgers)
    found = []
    for channel in sorted(set(sends) | set(receives)):
        if channel.source not in ledgers or channel.target not in ledgers:
            continue
        sent, received = sends[channel], receives[channel]
        inbox = (channel.group, channel.members, channel.target, channel.tag)
        if inbox not in open_receives:
            part = _first_pair_that_differs(channel, sent, received)
        else:
            taken = max(0, min(len(sent) - len(received), open_receives[inbox]))
            open_receives[inbox] -= taken
            part = None if len(sent) - taken == len(received) else _lonely(channel, sent, received)
        if part is not None:
            found.append(part)
    return found + _unused(open_receives)


def _channels(
    ledgers: Mapping[int, Sequence[Row]],
) -> tuple[
    dict[_Channel, list[Row]],
    dict[_Channel, list[Row]],
    Counter[tuple[str, tuple[int, ...], int, int]],
]:
    sends: dict[_Channel, list[Row]] = defaultdict(list)
    receives: dict[_Channel, list[Row]] = defaultdict(list)
    open_receives: Counter[tuple[str, tuple[int, ...], int, int]] = Counter()
    for rank, rows in ledgers.items():
        for row in rows:
            if row.op not in ("send", "recv") or row.peer is None:
                continue
            tag = row.tag or 0
            if row.op == "send":
                sends[_Channel(row.group, row.members, rank, row.peer, tag)].append(row)
            elif row.peer == ANY_SOURCE:
                open_receives[row.group, row.members, rank, tag] += 1
            else:
                receives[_Channel(row.group, row.members, row.peer, rank, tag)].append(row)
    return sends, receives, open_receives


def _first_pair_that_differs(
    channel: _Channel, sent: Sequence[Row], received: Sequence[Row]
) -> Disagreement | None:
    for index, (send, receive) in enumerate(zip(sent, received, strict=False)):
        for aspect, left, right in (
            ("dtype", send.dtype, receive.dtype),
            ("message size", send.in_bytes, receive.out_bytes),
        ):
            if left != right:
                calls = {channel.source: send.describe(), channel.target: receive.describe()}
                return Disagreement(channel.group, index, aspect, calls)
    return _lonely(channel, sent, received) if len(sent) != len(received) else None


def _lonely(channel: _Channel, sent: Sequence[Row], received: Sequence[Row]) -> Disagreement:
    """The first message that has no partner."""
    index = min(len(sent), len(received))
    tag = f" of tag {channel.tag}" if channel.tag else ""
    if len(sent) > len(received):
        calls = {channel.source: sent[index].describe(), channel.target: f"no matching recv{tag}"}
        aspect = "send count"
    else:
        calls = {channel.source: f"no matching send{tag}", channel.target: received[index].describe()}
        aspect = "recv count"
    return Disagreement(channel.group, index, aspect, calls)


def _unused(open_receives: Mapping[tuple[str, tuple[int, ...], int, int], int]) -> list[Disagreement]:
    return [
        Disagreement(group, 0, "recv count", {rank: f"{left} recv(s) from any rank that nobody sent to"})
        for (group, _, rank, _tag), left in sorted(open_receives.items())
        if left > 0
    ]
