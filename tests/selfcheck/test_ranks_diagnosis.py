"""Which rank is named first, from made-up remains: no process is started here."""

import threading

import pytest

from parproof.ledger.rows import Row
from parproof.ranks.diagnosis import Evidence, explain
from parproof.ranks.failure import RankFailure, RankProblem, rank_words
from parproof.ranks.files import Journal
from parproof.ranks.protocol import ErrorInfo, Report
from parproof.ranks.tracebacks import read_stacks, traceback_of

pytestmark = pytest.mark.selfcheck

LOST = "[/w/pair.cc:553] Connection closed by peer [127.0.0.1]:5. This is typically caused by a remote worker crashing."


def call(seq, op="all_reduce", shape=(4,), peer=None, members=(0, 1, 2)):
    """A row of the ledger."""
    return Row(seq, op, "single", "0", members, "float32", (shape,), 16, 16, "sum", peer)


def report(rank, rows=(), error=None, message="", *, skip=False):
    """A rank's report, good unless an error is given."""
    info = ErrorInfo(error, message, f"traceback of {rank}", skip) if error else None
    return Report(1, rank, b"", info, tuple(rows), (), (), False, 0.0, 0.0)


def evidence(reports=(), **more):
    """Remains of a run on three ranks; reports arrive in this order."""
    found = {r.rank: r for r in reports}
    arrived = {r.rank: float(when) for when, r in enumerate(reports)}
    return Evidence(3, reports=found, arrived_s=more.pop("arrived_s", arrived), waited_s=2.0, **more)


def first_of(remains):
    """(rank, kind) named first."""
    problem = explain(remains)[0]
    return problem.rank, problem.kind


def test_a_death_noticed_late_beats_the_failures_it_caused():
    """A process that writes a core file ends after its peers have lost it."""
    reports = [report(0, [call(0)], "RuntimeError", LOST), report(2, [call(0)], "RuntimeError", LOST)]
    remains = evidence(reports, deaths={1: -11}, arrived_s={0: 1.0, 2: 1.1, 1: 3.0})
    assert [(p.rank, p.kind) for p in explain(remains)] == [(1, "died"), (0, "raised"), (2, "raised")]


def test_what_a_peer_lost_is_one_short_line():
    """Without the place in C++, the advice and the traceback, but with the call it was in."""
    reports = [report(1, [], "ValueError", "no"), report(0, [call(0)], "RuntimeError", LOST)]
    (lost,) = (p for p in explain(evidence(reports, silent=(2,))) if p.rank == 0)
    assert lost.summary == (
        "RuntimeError: Connection closed by peer [127.0.0.1]:5, in call 0, all_reduce(sum, float32[4])"
    )
    assert lost.detail == ""


def test_of_two_own_faults_the_earlier_comes_first():
    """By the pool's clock, so that ranks on several hosts can be compared."""
    assert first_of(evidence([report(2, [], "ValueError", "b"), report(0, [], "KeyError", "a")])) == (
        2,
        "raised",
    )


def test_a_rank_that_returned_without_joining_is_the_culprit():
    """Also when the others ended by their own timeout."""
    timed_out = [report(r, [call(0), call(1)], "RuntimeError", "Timed out waiting 1000ms") for r in (0, 2)]
    remains = evidence([report(1, [call(0)]), *timed_out])
    assert first_of(remains) == (1, "absent")
    assert explain(remains)[0].summary.startswith("returned without joining all_reduce(sum, float32[4])")


@pytest.mark.parametrize(("mine", "other"), [("recv", "send"), ("send", "recv")])
def test_a_missing_partner_of_a_message_is_the_culprit(mine, other):
    """Rank 2 is no part of it."""
    waiting = Journal((call(0, mine, peer=1),))
    remains = evidence([report(1), report(2)], silent=(0,), journals={0: waiting})
    assert first_of(remains) == (1, "absent")
    joined = evidence([report(1, [call(0, other, peer=0)]), report(2)], silent=(0,), journals={0: waiting})
    assert [(p.rank, p.kind) for p in explain(joined)] == [(0, "silent")]


def test_a_rank_outside_a_group_is_not_missed_in_it():
    """Groups have members."""
    journals = {0: Journal((call(0, members=(0, 1)),)), 1: Journal((call(0, members=(0, 1)),))}
    remains = evidence([report(2)], silent=(0, 1), journals=journals)
    assert {p.rank for p in explain(remains)} == {0, 1}


def test_the_rank_that_calls_unlike_the_others_comes_first():
    """Before those that died or failed of it, also when it died of it itself."""
    reports = [report(0, [call(0)], "RuntimeError", LOST), report(2, [call(0)], "RuntimeError", LOST)]
    remains = evidence(
        reports,
        deaths={1: -6},
        arrived_s={0: 0.0, 2: 0.1, 1: 0.2},
        journals={1: Journal((call(0, shape=(5,)),))},
        stderr={1: "terminate called after throwing 'gloo::EnforceNotMet'"},
    )
    first = explain(remains)[0]
    assert (first.rank, first.kind, first.aspect) == (1, "mismatch", "shape")
    assert "was killed by SIGABRT" in first.summary


def test_of_silent_ranks_the_one_that_does_not_wait_comes_first():
    """When the journals say nothing: rank 0 and 2 wait for a peer that computes."""
    torch_frame = '  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 1 in recv\n'
    own_frame = '  File "/home/me/model.py", line 9 in compute\n'
    dump = "Current thread 0x0a (most recent call first):\n{}"
    stacks = {
        r: read_stacks(dump.format(own_frame if r == 1 else torch_frame + own_frame), 10) for r in range(3)
    }
    remains = evidence(silent=(0, 1, 2), stacks=stacks)
    assert explain(remains)[0].summary == (
        "did not report within 2.0 s; is at /home/me/model.py:9 in compute; no communication call yet"
    )
    assert explain(remains)[0].rank == 1


DUMP = f"""Fatal Python error: Segmentation fault

Thread 0x00000000000000bb (most recent call first):
  File "{threading.__file__}", line 320 in wait

Thread 0x00000000000000cc (most recent call first):
  File "/home/me/data.py", line 3 in prefetch

Current thread 0x00000000000000aa (most recent call first):
  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 5 in recv
  File "/home/me/model.py", line 12 in step
  File "/x/parproof/ranks/server.py", line 100 in _run
"""


def test_a_stack_dump_is_cut_to_what_the_program_does():
    """The main thread first; helper threads that only wait and our own frames are left out."""
    stacks = read_stacks(DUMP, 0xAA)
    assert str(stacks).splitlines() == [
        "Fatal Python error: Segmentation fault",
        "main thread:",
        "  torch/distributed/distributed_c10d.py:5 in recv",
        "  /home/me/model.py:12 in step",
        "thread cc:",
        "  /home/me/data.py:3 in prefetch",
    ]
    assert str(stacks.place) == "/home/me/model.py:12 in step"
    assert stacks.seems_to_wait


def test_equal_details_are_printed_once():
    """Eight ranks that raise the same fill no page."""
    failure = RankFailure(
        "m:p", 3, [RankProblem(r, "raised", "ValueError: x", "the traceback") for r in (2, 0, 1)]
    )
    assert str(failure).count("the traceback") == 1
    assert "--- ranks 0, 1, 2 of 3 ---" in str(failure)
    assert rank_words([4]) == "rank 4"


def test_the_cause_of_an_exception_is_kept_in_its_traceback():
    """`raise … from …` is how libraries say what happened."""
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as outer:
        text = traceback_of(outer)
    assert text.index("KeyError: 'inner'") < text.index("ValueError: outer")
