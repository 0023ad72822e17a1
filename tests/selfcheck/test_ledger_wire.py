"""Wire bytes: what left each rank equals the model of the transport, byte for byte."""

import dataclasses
import sys

import pytest

from parproof import programs
from parproof.checks import wire
from parproof.cost.wire import Transfer, Wire
from parproof.cost.wire import wire as modelled
from parproof.errors import Unsupported
from parproof.ledger.wire import WireSample

pytestmark = [
    pytest.mark.selfcheck,
    pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO byte counters need Linux"),
]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("world", [1, 2, 3, 4, 5])
def test_every_call_costs_what_the_model_says(world, ranks):
    """Payload and headers of every operation, from empty buffers to several segments a rank."""
    sizes = programs.wire.SIZES_BYTES if world in (2, 3) else programs.wire.SIZES_BYTES[:4]
    run = ranks(world).run(programs.wire.every_call, sizes)
    for rank in range(world):
        for name, sample in run.results[rank].items():
            wire.assert_wire(run.ledgers[rank], sample, rank=rank, where=f"{run.where(rank)}: {name}")


def test_places_in_a_subgroup_are_not_global_ranks(ranks):
    """Ranks 3 and 1 reduce to 1; rank 0 and 2 send nothing."""
    run = ranks(4).run(programs.wire.in_a_subgroup, [3, 1], 2**18)
    for rank in range(4):
        sent = wire.assert_wire(run.ledgers[rank], run.results[rank], rank=rank, where=run.where(rank))
        assert (sent > 0) == (rank in (1, 3))


def test_gloo_pays_for_a_reduce_scatter_what_an_all_reduce_costs(ranks):
    """So no run on gloo may claim the traffic that ZeRO-2 and ZeRO-3 save."""
    run = ranks(4).run(programs.wire.scatter_and_reduce, 2**20)
    for sample in run.results:
        assert sample["reduce_scatter"].sent_bytes == sample["all_reduce"].sent_bytes
        assert sample["reduce_scatter"].sent_bytes > 1.9 * (4 - 1) / 4 * 2**20


def test_a_single_byte_too_many_fails(ranks):
    """There is no tolerance; the text names the rank, the bytes and the calls."""
    run = ranks(2).run(programs.wire.in_a_subgroup, [0, 1], 2**18)
    sample = run.results[1]
    more = dataclasses.replace(sample, sent_bytes=sample.sent_bytes + 1)
    with pytest.raises(
        AssertionError, match=r"rank 1 of 2: \d+ bytes left the rank, expected \d+ for reduce"
    ):
        wire.assert_wire(run.ledgers[1], more, rank=1, where=run.where(1))


def test_a_call_outside_the_sample_does_not_count(ranks):
    """Rows are taken by the sample's own bounds: the all_reduce is not in the first sample."""
    run = ranks(2).run(programs.wire.scatter_and_reduce, 2**18)
    sample = run.results[0]["reduce_scatter"]
    whole = dataclasses.replace(sample, rows=(0, len(run.ledgers[0])))
    with pytest.raises(AssertionError, match="for all_reduce, reduce_scatter"):
        wire.assert_wire(run.ledgers[0], whole, rank=0, where=run.where(0))


def test_what_cannot_be_measured_or_modelled_says_why():
    """A system without byte counters and a backend without a model: a reason, never a number."""
    with pytest.raises(Unsupported, match=r"not measured: TCP_INFO .* need Linux"):
        wire.assert_wire(
            [], WireSample(not_measured="TCP_INFO byte counters need Linux"), rank=0, where="here"
        )
    with pytest.raises(Unsupported, match="backend nccl are not modelled"):
        modelled(Transfer("all_reduce", "single", 0, 2, (4,), 4), "nccl")


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all", "broadcast", "reduce"])
def test_messages_are_conserved(op):
    """Over a group, as many messages are received as sent; a single rank sends nothing."""
    for size in range(1, 9):
        for total in (0, 8, 24, 40_000, 3 * 2**20, 20 * 2**20 + 8):
            whole = [modelled(Transfer(op, "single", r, size, (total,), 8, root=0)) for r in range(size)]
            assert sum(one.num_sent for one in whole) == sum(one.num_received for one in whole)
            assert size > 1 or whole == [Wire()]
