"""PAR-ZERO-STATE: parameters, gradients and optimizer state on several ranks.

Question   Which part of the training state is sharded, what does that save, what does it send, and is the
           training still the same?
Baseline   one process that trains on the whole batch, textbook Adam, float64.
Candidate  --subject: ddp, zero1, zero2, zero3 and hsdp (2 groups of 2).
Claims     C1   gradients of the first step equal the baseline's, tensor by tensor.
           C2   after three steps of accumulation, clipping and AdamW: losses, gradients of each step,
                parameters and optimizer state equal the baseline's; exactly, where the arithmetic is exact.
           C3   owner maps partition: what is sharded has one owner per element, the rest is on every rank.
           C4   resident bytes by object equal the formulas, and nothing else is held.
           C5   a step sends what the strategy says, per phase, and nothing else.
           C6   inside a window no gradient is sent; the result is that of the whole window.
           C7   every rank reports the baseline's gradient norm and clips by it.
           C8   tied, frozen, unused, one-element and mixed-dtype parameters are trained as in the baseline.
           C9   saved, resumed, re-sharded training has the bits of the uninterrupted one; no misfit loads in silence.
           C10  what cannot be trained is refused by name; use that differs by rank is right or refused.
Not shown  time, overlap, wire bytes (gloo sends a reduce-scatter as an all-reduce), activations, peak memory
           inside a unit, DDP's buckets where gradients are copies of them, SyncBatchNorm (torch's asks for
           GPUs: pytorch#64039), rank_local_state_dict (torch has it no more: pytorch#60284).
"""

import pytest

from parproof import oracles, workloads
from parproof.checks import zero_state
from parproof.checks import zero_training as judge
from parproof.programs import zero as programs
from parproof.programs.zero import Course, plan_for, size
from parproof.ranks.failure import RankFailure

pytestmark = [pytest.mark.experiment("PAR-ZERO-STATE"), pytest.mark.lanes("cpu", "cuda2", control=4)]

ALL = ("ddp", "zero1", "zero2", "zero3", "hsdp")
every_strategy = pytest.mark.parametrize("strategy", ALL)
SOME = ("ddp", "zero1", "zero3")
APART = ("blocks.0.up.weight", "blocks.1.down.bias", "outlet.weight")  # a second parameter group


def full_course(strategy, ranks, subject):
    """(run, course): AdamW with all that a step may have; one run, judged by several claims."""
    plan = plan_for(subject, strategy, accumulation=2, max_norm=4.0, weight_decay=0.1, no_decay=APART)
    course = Course("smooth", plan)
    return ranks(size(strategy)).run_once(programs.train, subject, course), course


def over(**strategies_of):
    """Parametrise by kind and strategy: over(kind=strategies, …)."""
    pairs = [(kind, strategy) for kind, chosen in strategies_of.items() for strategy in chosen]
    return pytest.mark.parametrize(("kind", "strategy"), pairs, ids=str)


@pytest.mark.claim("C1")
@pytest.mark.parametrize("world", [2, 3], ids="W{}".format)
@every_strategy
def test_c1_gradients_of_the_first_step(strategy, world, lane, ranks, subject):
    """Within the bound of re-associated sums; on two ranks addition leaves no freedom, so bit for bit."""
    course = Course("smooth", plan_for(subject, strategy, accumulation=2), windows=1)
    run = ranks(size(strategy, world)).run_once(programs.train, subject, course)
    judge.assert_first_gradients(run, oracles.zero.on(course))
    if run.world_size == 2 and lane == "cpu":
        ordered = oracles.zero.gradient_in_rank_order("smooth", "float64", world=2, accumulation=2)
        seen = [result["gradients"][0] for result in run.results]
        zero_state.assert_pieces(seen, ordered, what="gradients", bounds=None)


@pytest.mark.claim("C1")
@over(penalty=ALL, recomputed=("ddp", "zero3"), mixed16=ALL)
def test_c1_gradients_of_unusual_backward_passes(strategy, kind, ranks, subject):
    """A loss with a gradient in it, recomputed activations, and bfloat16 with float32 master copies."""
    subject.require(f"zero.{kind}.{strategy}")
    mixed = kind == "mixed16"
    options = ("double_backward",) if kind == "penalty" else ()
    plan = plan_for(subject, strategy, mixed_bf16=mixed, options=options)
    course = Course("smooth" if mixed else kind, plan, windows=1)
    run = ranks(4 if strategy == "hsdp" else 2).run(programs.train, subject, course)
    judge.assert_first_gradients(run, oracles.zero.on(course), "bfloat16" if mixed else "float64")


@pytest.mark.claim("C1")
def test_c1_a_hook_sees_undivided_gradients(ranks, subject):
    """What a DDP communication hook is given is the rank's own gradient; the division is the hook's."""
    subject.require("zero.raw_hook.ddp")
    course = Course("smooth", plan_for(subject, "ddp", options=("raw_hook",)), windows=1)
    run = ranks(4).run(programs.raw_gradients, subject, course)
    judge.assert_hook_saw(run, oracles.zero.on(course))


@pytest.mark.claim("C2")
def test_c2_small_buckets(ranks, subject, evidence):
    """The bucket size may change bits (docs/numerics.md), not more; DDP adopts it in the second window."""
    subject.require("zero.small_buckets.ddp")
    course = Course("smooth", plan_for(subject, "ddp", options=("small_buckets",)))
    run = ranks(4).run(programs.train, subject, course)
    judge.assert_trained(run, course, oracles.zero.on(course))
    usual = ranks(4).run(programs.train, subject, Course("smooth", plan_for(subject, "ddp")))
    messages = [len(zero_state.rows_of(each.ledgers[0], "window2")) for each in (run, usual)]
    evidence.measured(num_messages=messages, bucket_size_changes_bits=zero_state.differ(run, usual))
    assert messages[0] > messages[1] == 1


@pytest.mark.claim("C2")
@every_strategy
def test_c2_three_steps_of_adamw(strategy, ranks, subject, evidence):
    """Two micro-batches a step, clipping, decay: everything a training leaves behind."""
    run, course = full_course(strategy, ranks, subject)
    evidence.on("zero/smooth", **course.parameters)
    judge.assert_trained(run, course, oracles.zero.on(course))


@pytest.mark.claim("C2")
@every_strategy
def test_c2_three_steps_on_integers_are_exact(strategy, ranks, subject):
    """Integer data and powers of two everywhere: no rounding, so any correct order gives the same bits."""
    plan = plan_for(subject, strategy, accumulation=2, optimizer="sgd", lr=2.0**-4)
    course = Course("integers", plan)
    run = ranks(4 if strategy in ("zero2", "hsdp") else 2).run(programs.train, subject, course)
    judge.assert_same_bits(run, oracles.zero.on(course))


@pytest.mark.claim("C3")
@every_strategy
def test_c3_owner_maps_partition(strategy, ranks, subject):
    """Every element has its number of owners: one, one in each hsdp group, or all ranks."""
    judge.assert_owners(*full_course(strategy, ranks, subject))


@pytest.mark.claim("C4")
@pytest.mark.parametrize("precision", ["float32", "mixed16"])
@every_strategy
def test_c4_resident_bytes(strategy, precision, ranks, subject, evidence):
    """Storages that are really held: 4 + 4 + 8 bytes a parameter, with masters apart 2 + 2 + 12, divided where sharded."""
    subject.require(f"zero.{precision}.{strategy}")
    plan = plan_for(subject, strategy, mixed_bf16=precision == "mixed16")
    course = Course("smooth", plan, 2, "float32")
    evidence.on("zero/smooth", **course.parameters)
    run = ranks(size(strategy)).run(programs.bytes_held, subject, course)
    evidence.measured(after_backward_bytes=[r["after_backward"] for r in run.results])
    judge.assert_resident(run, course)


@pytest.mark.claim("C5")
@every_strategy
def test_c5_traffic_of_a_step(strategy, ranks, subject, evidence):
    """The third window: wrappers exchange set-up messages in the first two."""
    run, course = full_course(strategy, ranks, subject)
    evidence.on("zero/smooth", **course.parameters)
    lines = judge.predicted(run, course)
    evidence.predict(lines, within=["window2"])
    judge.assert_step_traffic(run, lines, window=2)


@pytest.mark.claim("C6")
@pytest.mark.parametrize("option", ["plain", "static_graph"])
@every_strategy
def test_c6_a_window_sends_no_gradient_before_its_end(strategy, option, ranks, subject):
    """Three micro-batches: the bytes of the first two prove it, the result is that of all three."""
    subject.require(f"zero.{option}.{strategy}")
    options = () if option == "plain" else (option,)
    course = Course("smooth", plan_for(subject, strategy, accumulation=3, options=options), windows=1)
    run = ranks(4 if strategy == "hsdp" else 2).run(programs.train, subject, course)
    judge.assert_quiet(run, course, window=0)
    judge.assert_trained(run, course, oracles.zero.on(course))


@pytest.mark.claim("C7")
@every_strategy
def test_c7_gradient_norm_on_every_rank(strategy, ranks, subject):
    """The global norm, not the shard's, not the sum over copies; clipped parameters prove that it was used."""
    course = Course("smooth", plan_for(subject, strategy, max_norm=0.5, optimizer="sgd"), windows=2)
    run = ranks(size(strategy)).run(programs.train, subject, course)
    judge.assert_trained(run, course, oracles.zero.on(course))


@pytest.mark.claim("C8")
@over(odd=ALL, mixed_dtype=ALL, one_rank=("ddp", "zero2", "zero3"))
def test_c8_odd_parameters(strategy, kind, ranks, subject):
    """Odd: tied, frozen, unused and (1,) at once. Decay is on, so what is touched without reason shows."""
    subject.require(f"zero.{kind}.{strategy}")
    alone, mixed = kind == "one_rank", kind == "mixed_dtype"
    plan = plan_for(subject, strategy, weight_decay=0.5, find_unused=not mixed, max_norm=1.0)
    course = Course("odd" if alone else kind, plan, windows=2)
    run = ranks(1 if alone else size(strategy)).run(programs.train, subject, course)
    dtype = "float32" if mixed else "float64"
    judge.assert_trained(run, course, oracles.zero.on(course), dtype=dtype)


@pytest.mark.claim("C9")
@over(groups=ALL, fused=("zero1", "zero3"), async_save=("zero3",))
def test_c9_resumed_training(strategy, kind, ranks, subject, tmp_path):
    """Saved and continued: the same bits as without the interruption; two interleaved parameter groups."""
    subject.require(f"zero.{kind}.{strategy}")
    options = ("fused",) if kind == "fused" else ()
    plan = plan_for(subject, strategy, max_norm=4.0, weight_decay=0.3, no_decay=APART, options=options)
    course, where = Course("smooth", plan, windows=1), str(tmp_path / "saved")
    whole = ranks(size(strategy, 2)).run(programs.save, subject, course, where, kind)
    resumed = ranks(size(strategy, 2)).run(programs.resume, subject, course, where)
    judge.assert_resumed(resumed.results, whole.results, course)


@pytest.mark.claim("C9")
@every_strategy
def test_c9_resharded_training(strategy, ranks, subject, tmp_path, evidence):
    """From rank to rank number: gradients do not depend on parameters and are exact, so every bit survives."""
    path, plan = programs.MOVES[strategy], plan_for(subject, strategy)
    evidence.on("zero/linear", num_ranks=path)
    course = Course("linear", plan, windows=len(path))
    whole = ranks(path[0]).run(programs.stretch, subject, course)
    legs = programs.legs(course, str(tmp_path))
    runs = [ranks(p).run(programs.stretch, subject, *leg) for p, leg in zip(path, legs, strict=True)]
    judge.assert_moved(runs, whole, course)


@pytest.mark.claim("C9")
@over(surplus=ALL, missing=ALL, rounded=ALL, widened=SOME, cut=SOME)  # not judged: these with zero2 and hsdp
def test_c9_a_checkpoint_of_another_model(strategy, kind, ranks, subject, tmp_path):
    """Parameters that only one side knows are not dropped in silence, numbers not rounded or cut."""
    plan, where = plan_for(subject, strategy), str(tmp_path / "saved")
    (old, dtype), (new, other), named, exact_will_do = programs.FOREIGN[kind]
    source, target = Course(old, plan, 1, dtype), Course(new, plan, 1, other)
    run = ranks(2).run(programs.hand_on, subject, source, target, where)
    judge.assert_foreign(*zip(*run.results, strict=True), target, named, exact_will_do=exact_will_do)


@pytest.mark.claim("C10")
@pytest.mark.parametrize("fault", programs.IMPOSSIBLE)
def test_c10_a_plan_that_cannot_be(fault, ranks, subject):
    """Three ranks; every one of them says what is wrong before any gradient is sent."""
    plan, kind, named = programs.IMPOSSIBLE[fault]
    run = ranks(3).run(programs.refuse, subject, Course(kind, plan))
    judge.assert_refused(run.results, named)


@pytest.mark.claim("C10")
@over(
    divergent=("ddp", "zero1", "zero2", "zero3"),
    unused=("ddp", "zero2", "zero3"),
    tied_units=("zero2", "zero3"),
)
def test_c10_use_that_differs(strategy, kind, ranks, subject):
    """Used on some ranks only, used nowhere, shared by two units: right, or an error that says so."""
    plan = plan_for(subject, strategy, find_unused=kind == "divergent")
    units = ("embed", "blocks.0", "blocks.1", "head") if kind == "tied_units" else workloads.zero.UNITS
    course = Course("tied" if kind == "tied_units" else kind, plan, windows=2, units=units)
    try:
        run = ranks(size(strategy, 2)).run(programs.train, subject, course)
    except RankFailure as failure:
        zero_state.assert_says(failure, "unused|no gradient|not used|shared|tied|two units|one parameter")
        return
    judge.assert_trained(run, course, oracles.zero.on(course))
