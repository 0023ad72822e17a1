"""Traces of several ranks are read onto one clock, or refused."""

import json

import pytest

from parproof.cost.trace import TraceIntervals, common_origin_ns, read_trace
from parproof.errors import UsageError

pytestmark = pytest.mark.selfcheck
BASE_NS = 1_790_857_026_000_000_000


def written(path, rank, events, **changes):
    """A trace as torch.profiler writes it: microseconds with three decimals since a base in ns."""
    about = {
        "distributedInfo": {"rank": rank, "world_size": 2},
        "host_name": "a",
        "baseTimeNanoseconds": BASE_NS,
    }
    found = [{"ph": "X", "name": name, "ts": ts, "dur": dur} for name, ts, dur in events]
    path.write_text(json.dumps(about | {"traceEvents": found} | changes))
    return read_trace(path, "work")


def test_ranks_keep_their_distance(tmp_path):
    """Rank 1 starts 2.5 µs after rank 0, with another base of its own: told to the ns, not from its own first event."""
    first = written(
        tmp_path / "0", 0, [("work", 5155359924912.796, 10.001), ("aten::mm", 5155359924000.0, 1.0)]
    )
    events = [("gloo:all_reduce", 5155359924915.296 - 1000, 4.002)]
    second = written(tmp_path / "1", 1, events, baseTimeNanoseconds=BASE_NS + 1_000_000)
    origin_ns = common_origin_ns([second, first])
    assert origin_ns == BASE_NS + 5155359924912796
    assert first.compute == ((origin_ns, origin_ns + 10001),)
    assert second.communication == (("all_reduce", origin_ns + 2500, origin_ns + 6502),)


@pytest.mark.parametrize("gone", ["baseTimeNanoseconds", "host_name"])
def test_a_trace_that_does_not_tell_its_clock_is_refused(gone, tmp_path):
    """Without base or host nothing says that its times can be laid beside another rank's."""
    with pytest.raises(UsageError, match=r"TypeError|ValueError"):
        written(tmp_path / "0", 0, [("work", 1.0, 1.0)], **{gone: None})


@pytest.mark.parametrize(
    ("ranks_and_hosts", "spans"),
    [
        ([(0, "a")], ((0, 1),)),
        ([(0, "a"), (0, "a")], ((0, 1),)),
        ([(0, "a"), (1, "b")], ((0, 1),)),
        ([(0, "a"), (1, "a")], ()),
        ([], ()),
    ],
    ids=["a_rank_missing", "one_rank_twice", "two_hosts", "no_interval", "nothing"],
)
def test_traces_without_a_common_clock_are_refused(ranks_and_hosts, spans):
    """Only all ranks of one run on one host have a common origin."""
    reads = [TraceIntervals(rank, 2, host, (), spans) for rank, host in ranks_and_hosts]
    with pytest.raises(UsageError, match="share a clock"):
        common_origin_ns(reads)
