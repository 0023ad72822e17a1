"""Rank programs of PAR-ZERO-STATE. Importing this module does not import torch, so that collection stays light."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from parproof.subjects.zero_protocol import StatePlan

if TYPE_CHECKING:
    from torch import Tensor, nn

    from parproof.ranks.context import RankContext
    from parproof.subjects.protocol import SubjectRef
    from parproof.subjects.zero_protocol import StateTraining


@dataclass(frozen=True)
class Course:
    """A training run: which model and data (`kind`, see workloads.zero), how laid out, for how long."""

    kind: str
    plan: StatePlan
    windows: int = 3
    dtype: str = "float64"
    first_window: int = 0
    units: tuple[str, ...] = ("blocks.0", "blocks.1")

    @property
    def parameters(self) -> dict[str, Any]:
        """The course as plain values, for the record of a test."""
        return asdict(self.plan) | {"windows": self.windows, "dtype": self.dtype}


# name → a plan that nobody can carry out on three ranks, the kind of its model, a word its error has to contain
IMPOSSIBLE = {
    "stage": (StatePlan("zero4"), "smooth", "zero4"),
    "optimizer": (StatePlan("ddp", optimizer="lion"), "smooth", "lion"),
    "accumulation": (StatePlan("zero1", accumulation=0), "smooth", "accumulation"),
    "learning_rate": (StatePlan("zero2", lr=-1.0), "smooth", "learning rate"),
    "replicas": (StatePlan("hsdp", replicas=2), "smooth", "replicas"),
    "nothing_replicated": (StatePlan("ddp"), "empty", "parameter"),
    "nothing_sharded": (StatePlan("zero3"), "empty", "parameter"),
}


# kind → (model and dtype that were saved, those of the target, what a refusal names, whether exact values will do)
FOREIGN = {
    "surplus": (("gated", "float64"), ("smooth", "float64"), "gate", False),
    "missing": (("smooth", "float64"), ("gated", "float64"), "gate", False),
    "rounded": (("smooth", "float64"), ("smooth", "float32"), "float", True),
    "widened": (("smooth", "float32"), ("smooth", "float64"), "float", True),
    "cut": (("metered", "float64"), ("counted", "float64"), "meter", True),
}

# strategy → numbers of ranks, one behind the other: every step between 2 and 3, 2 and 4, 2 and 1, both ways.
# Two groups of hsdp have no odd number of ranks.
MOVES = dict.fromkeys(("ddp", "zero1", "zero2", "zero3"), (2, 3, 2, 4, 2, 1, 2)) | {"hsdp": (4, 2, 4)}


def plan_for(subject: SubjectRef, strategy: str, **changes: Any) -> StatePlan:
    """A plan of a strategy; Unsupported, with the reason, when the subject has no such thing."""
    subject.require(f"zero.{strategy}")
    return StatePlan(strategy, replicas=2 if strategy == "hsdp" else 1, **changes)


def size(strategy: str, world: int = 3) -> int:
    """Ranks to use: hsdp needs two equal groups; three ranks leave uneven shards everywhere else."""
    return 2 * (world - 1) if strategy == "hsdp" else world


def begin(ctx: RankContext, subject: SubjectRef, course: Course) -> StateTraining:
    """Build the model of a course under its plan."""
    import torch

    from parproof.workloads import zero as workload

    module = workload.build(course.kind, getattr(torch, course.dtype), ctx.device)
    with ctx.phase("build"):
        training: StateTraining = subject.make("zero").build(course.plan, module, course.units)
    return training


def window(ctx: RankContext, training: StateTraining, course: Course, index: int) -> dict[str, Any]:
    """One window up to its gradients: the micro-batches' losses; phases window2/micro0/forward and so on."""
    import torch

    from parproof.workloads import zero as workload

    plan, losses = course.plan, []
    batch = workload.global_batch(course.kind, index, getattr(torch, course.dtype))
    parts = ctx.world_size * plan.accumulation
    for micro in range(plan.accumulation):
        samples = workload.share(batch, ctx.rank * plan.accumulation + micro, parts)
        if plan.mixed_bf16:
            samples = tuple(t.to(torch.bfloat16) for t in samples)
        samples = tuple(t.to(ctx.device) for t in samples)
        last = micro == plan.accumulation - 1
        with ctx.phase(f"window{index}/micro{micro}/forward"):
            loss = training.forward(*samples, last=last)
        with ctx.phase(f"window{index}/micro{micro}/backward"):
            training.backward(loss)
        losses.append(float(loss.detach()))
    return {"losses": losses}


def train(ctx: RankContext, subject: SubjectRef, course: Course) -> dict[str, Any]:
    """A whole course; what this rank saw and holds, as plain data."""
    training = begin(ctx, subject, course)
    return report(ctx, training, course)


def report(ctx: RankContext, training: StateTraining, course: Course) -> dict[str, Any]:
    """Run the windows of a course; per window losses, gradients and norm, at the end parameters and state."""
    seen: dict[str, list[Any]] = {"losses": [], "gradients": [], "norms": []}
    for index in range(course.first_window, course.first_window + course.windows):
        seen["losses"] += window(ctx, training, course, index)["losses"]
        seen["gradients"].append(copied(training, "gradients"))
        with ctx.phase(f"window{index}/clip"):
            seen["norms"].append(float(training.clip()))
        with ctx.phase(f"window{index}/step"):
            training.step()
    return seen | final(training)


def final(training: StateTraining) -> dict[str, Any]:
    """Parameters, optimizer state and step counts that this rank holds."""
    kinds = ("parameters", "exp_avg", "exp_avg_sq")
    return {kind: copied(training, kind) for kind in kinds} | {
        "steps": training.steps(),
        "layout": training.layout,
    }


def copied(training: StateTraining, kind: str) -> dict[str, list[tuple[int, Tensor]]]:
    """Pieces of one kind, detached from what goes on living."""
    return {
        name: [(start, piece.detach().reshape(-1).clone().cpu()) for start, piece in pieces]
        for name, pieces in training.pieces(kind).items()
    }


def bytes_held(ctx: RankContext, subject: SubjectRef, course: Course) -> dict[str, Any]:
    """Resident bytes by object, after the last backward and after the last step of a course."""
    from parproof.programs.zero_memory import Census

    census = Census()
    training = begin(ctx, subject, course)
    points = {}
    for index in range(course.windows):
        window(ctx, training, course, index)
        points["after_backward"] = census.take(training)
        training.clip()
        training.step()
        kept = points["after_backward"]["gradients"] if training.layout.keeps_buckets else 0
        points["after_step"] = census.take(training, kept_bytes=kept)
    return points | {"layout": training.layout}


def refuse(ctx: RankContext, subject: SubjectRef, course: Course, directory: str = "") -> dict[str, Any]:
    """Build (and load) what should be refused: the error's kinds and text, or what came of it and is held then."""
    subject.require("zero" if course.plan.strategy == "zero4" else f"zero.{course.plan.strategy}")
    if directory:
        subject.require(f"zero.checkpoint.{course.plan.strategy}")
    try:
        if course.kind == "empty":
            subject.make("zero").build(course.plan, _nothing(), ())
            return {"kinds": [], "text": "trains nothing"}
        training = begin(ctx, subject, course)
        if not directory:
            return {"kinds": [], "text": f"built {course.plan}"}
        training.load(directory)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # torch's CheckpointException is no Exception
        return {"kinds": [kind.__name__ for kind in type(error).__mro__], "text": str(error)}
    return {"kinds": [], "text": f"loaded {directory} into {course.kind}"} | final(training)


def _nothing() -> nn.Module:
    from torch import nn

    return nn.ReLU()


def save(ctx: RankContext, subject: SubjectRef, course: Course, directory: str, mode: str) -> dict[str, Any]:
    """Train, save, train on: the uninterrupted end.

    mode   async_save: training goes on during the writing; only: it ends with the checkpoint
    """
    import torch.distributed as dist

    subject.require(f"zero.checkpoint.{course.plan.strategy}")
    training = begin(ctx, subject, course)
    report(ctx, training, course)
    pending = training.save_async(directory) if mode == "async_save" else None
    if pending is None:
        training.save(directory)
    if mode == "only":
        return final(training)
    seen = report(ctx, training, second_half(course))
    if pending is not None:
        pending.result()
    dist.barrier()
    return seen


def hand_on(
    ctx: RankContext, subject: SubjectRef, source: Course, target: Course, directory: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A checkpoint of one course loaded into another: what came of the load (see refuse), what was held at the save."""
    saved = save(ctx, subject, source, directory, "only")
    return refuse(ctx, subject, target, directory), saved


def second_half(course: Course) -> Course:
    """As many windows again, on new data."""
    return replace(course, first_window=course.first_window + course.windows)


def resume(ctx: RankContext, subject: SubjectRef, course: Course, directory: str) -> dict[str, Any]:
    """Load into a fresh model and train the second half of a course."""
    training = begin(ctx, subject, course)
    training.load(directory)
    return report(ctx, training, second_half(course))


def stretch(
    ctx: RankContext, subject: SubjectRef, course: Course, start: str = "", end: str = ""
) -> list[dict[str, Any]]:
    """Load (or begin), train, save: for each window, what this rank held before it, its losses, what it holds after."""
    subject.require(f"zero.checkpoint.{course.plan.strategy}")
    training = begin(ctx, subject, course)
    if start:
        training.load(start)
    held = []
    for index in range(course.first_window, course.first_window + course.windows):
        before = copied(training, "parameters")
        seen = report(ctx, training, replace(course, first_window=index, windows=1))
        held.append(final(training) | {"before": before, "losses": seen["losses"]})
    if end:
        training.save(end)
    return held


def legs(course: Course, folder: str) -> list[tuple[Course, str, str]]:
    """A course in legs of one window: what to train, where to begin from, where to leave the checkpoint."""
    places = ["", *(f"{folder}/after{number}" for number in range(1, course.windows)), ""]
    each = [replace(course, first_window=number, windows=1) for number in range(course.windows)]
    return list(zip(each, places, places[1:], strict=False))


def raw_gradients(ctx: RankContext, subject: SubjectRef, course: Course) -> dict[str, Any]:
    """What a communication hook is given, and what comes out."""
    training = begin(ctx, subject, course)
    window(ctx, training, course, 0)
    raw = {
        name: [(start, piece.clone()) for start, piece in pieces]
        for name, pieces in training.raw_gradients().items()
    }
    return {"raw": raw, "gradients": copied(training, "gradients")}
