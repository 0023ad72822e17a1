"""What ranks asked for when they did not come together: noted, read again, and compared."""

import os

import pytest

from parproof.ranks import joining
from parproof.ranks.diagnosis import Evidence, explain
from parproof.ranks.files import Journal, RankFiles
from parproof.ranks.joining import Join
from parproof.ranks.protocol import ErrorInfo, Report

pytestmark = pytest.mark.selfcheck


@pytest.mark.parametrize(
    ("joins", "words"),
    [
        ([(0, 4), (1, 4), (2, 4)], "joined as rank 1 of 4: joined with world size 4 by 3 ranks"),
        ([(0, 2), (1, 2), (0, 2)], "joined as rank 1 of 2: ranks 0, 2 both joined as rank 0 of 2"),
        ([(0, 3), (0, 3), (0, 3)], "joined as rank 0 of 3: ranks 0, 1, 2 all joined as rank 0 of 3"),
        (
            [(0, 3), (1, 4), (2, 3)],
            "joined as rank 1 of 4: world size differs: ranks 0, 2 with world size 3, rank 1 with world size 4",
        ),
    ],
)
def test_what_cannot_meet_is_said_for_every_rank(joins, words):
    """The second rank's words; the others have their own number in front of the same."""
    found = joining.misjoined({rank: Join(*asked) for rank, asked in enumerate(joins)}, 3)
    assert [problem.rank for problem in found] == [0, 1, 2]
    assert found[1].summary == words


@pytest.mark.parametrize("joins", [{}, {0: Join(0, 3), 2: Join(2, 3)}, {0: Join(0, 4), 1: Join(1, 4)}])
def test_who_may_only_wait_for_a_late_rank_has_done_nothing_wrong(joins):
    """The rank that has not asked yet may be the one that all wait for."""
    assert joining.misjoined(joins, 3) == []


def test_the_join_comes_before_the_timeout_it_leads_to():
    """A rank that raised and one that is silent: both have the cause first, the traceback stays."""
    error = ErrorInfo("DistStoreError", "wait timeout after 300ms", "the traceback", is_skip=False)
    report = Report(0, 0, None, error, (), (), (), False, 0.0, 0.0)
    journals = {rank: Journal(joining=Join(0, 2)) for rank in (0, 1)}
    found = explain(Evidence(2, reports={0: report}, silent=(1,), journals=journals))
    assert [(p.rank, p.kind, p.aspect) for p in found] == [
        (0, "mismatch", "rendezvous"),
        (1, "mismatch", "rendezvous"),
    ]
    assert found[0].detail == "the traceback"


@pytest.mark.parametrize("fails", [True, False])
def test_a_join_is_noted_before_it_is_made_and_forgotten_when_it_is_well(fails, tmp_path, monkeypatch):
    """Numbers come from the arguments, or as torch takes them from the environment."""
    import torch.distributed as dist

    def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1):
        if fails:
            raise RuntimeError("nobody came")

    monkeypatch.setattr(dist, "init_process_group", init_process_group)
    monkeypatch.setattr(dist.distributed_c10d, "init_process_group", init_process_group)
    monkeypatch.setenv("WORLD_SIZE", "5")
    files = RankFiles(str(tmp_path), 0)
    fd = os.open(files.journal, os.O_WRONLY | os.O_CREAT)
    os.write(fd, b'{"job": 7, "main_thread": 1}\n')
    with joining.noted(fd):
        try:
            dist.init_process_group("gloo", rank=3)
        except RuntimeError:
            assert fails
    os.close(fd)
    assert dist.init_process_group is init_process_group
    assert files.read_journal(7).joining == (Join(3, 5) if fails else None)
