"""The ledger sees every kind of communication torch can do: once, whole, and nothing else."""

import pytest

from parproof.checks import assert_ledger_complete
from parproof.programs import kinds

pytestmark = [
    pytest.mark.selfcheck,
    pytest.mark.lanes("cpu"),
    # Every name is used, the deprecated ones too.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def assert_seen(run, family):
    """Each kind's rows are what was asked for, on each rank; the groups' own counts agree."""
    world = run.world_size
    table = kinds.asked.kinds_of(family, world)
    for kind in table:
        for rank in range(world):
            observed = kinds.asked.seen(run.ledgers[rank], kind.name, world)
            assert observed == list(kind.asked(rank, world)), f"{run.where(rank)}: {kind.name}"
    phases = {row.phase for rows in run.ledgers for row in rows}
    assert phases <= {kind.name for kind in table}
    assert_ledger_complete(run)


@pytest.mark.parametrize("family", ["classic", "functional", "point_to_point"])
@pytest.mark.parametrize("world", [2, 3, 4])
def test_calls_of_one_operation(world, family, ranks):
    """Classic, functional, autograd and point-to-point calls, in every form gloo takes."""
    assert_seen(ranks(world).run(kinds.asked.do_all, family), family)
