"""Which trainings the pipeline experiment looks at. No torch here: a test module reads it at collection."""

from __future__ import annotations

from dataclasses import dataclass

from parproof.subjects.pipeline_protocol import PipelinePlan

ROWS = 3  # of each micro-batch, where they are equal

# Name in test ids → (schedule, stages on each rank).
SCHEDULES = {
    "fill_drain": ("fill_drain", 1),
    "one_f_one_b": ("one_f_one_b", 1),
    "interleaved": ("interleaved", 2),
    "breadth_first": ("breadth_first", 2),
    "zero_bubble": ("zero_bubble", 1),
    "zero_bubble_x2": ("zero_bubble", 2),
    "zero_bubble_v": ("zero_bubble_v", 2),
    "dual_pipe_v": ("dual_pipe_v", 2),
}
# One schedule for each way of running one: whole and split backward, one stage, several, and there and back.
ENGINES = ("fill_drain", "one_f_one_b", "interleaved", "zero_bubble", "zero_bubble_v", "dual_pipe_v")
_ONE_OF_EACH = tuple(name for name in SCHEDULES if name != "zero_bubble_x2")
ACCUMULATING = ("fill_drain", "interleaved", "zero_bubble", "zero_bubble_v")

# Rows of each micro-batch: what a batch of 7 comes apart to, and a cut whose largest part is neither first nor last,
# so that buffers of the first one's size are too small and those of the largest one's too big.
RAGGED, SKEWED = (3, 2, 2), (1, 4, 2)
_LONGER = {"dual_pipe_v": (1,)}  # it needs two micro-batches for each rank

# On four ranks two stages each would add nothing but time. () are equal micro-batches.
ON_WORLDS: dict[str, tuple[int, str, tuple[int, ...]]] = {
    f"W{world}-{name}": (world, name, ())
    for world in (2, 3, 4)
    for name, (_, stages_per_rank) in SCHEDULES.items()
    if world < 4 or stages_per_rank == 1
} | {
    f"W{world}-{name}-rows_{'_'.join(map(str, rows))}": (world, name, rows)
    for name in _ONE_OF_EACH
    for rows in [SKEWED + _LONGER.get(name, ())]
    for world in [3 if SCHEDULES[name][1] == 1 else 2]
}

# (schedule, micro-batches) on two ranks: one, as many as ranks, a number that is no power of two, more.
COUNTS = [
    ("fill_drain", 1),
    ("one_f_one_b", 2),
    *((name, m) for name in ("fill_drain", "one_f_one_b", "zero_bubble") for m in (6, 8)),
]

# What stages are made of, and what crosses from one to the next, beside the plain chain. Whole backward is plain
# autograd, to which a weight used twice and a custom function are nothing special.
SPLIT = ("zero_bubble", "zero_bubble_v", "dual_pipe_v")
KINDS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    f"{kind}-{name}": (kind, name, ())
    for kind, names in (
        ("chunks", ENGINES),
        ("skip", ENGINES),
        ("index", ENGINES),
        ("hooked", ENGINES),
        ("frozen", ("one_f_one_b", *SPLIT)),
        ("shared", SPLIT),
        ("function", SPLIT),
    )
    for name in names
} | {
    f"{kind}-{name}-rows_1_4_2": (kind, name, SKEWED)
    for kind, name in (
        ("chunks", "one_f_one_b"),
        ("skip", "zero_bubble"),
        ("index", "interleaved"),
        ("frozen", "zero_bubble_v"),
    )
}

TIED = {name: (name, ()) for name in ENGINES} | {
    f"{name}-rows_1_4_2": (name, SKEWED) for name in ("fill_drain", "zero_bubble_v")
}
TRAFFIC: dict[str, tuple[str, str, tuple[int, ...]]] = {
    f"{kind}-{name}": (kind, name, ()) for kind in ("chain", "index") for name in ENGINES
} | {
    f"{kind}-{name}-rows_1_4_2": (kind, name, SKEWED)
    for kind, name in (
        *(("chain", name) for name in _ONE_OF_EACH if name != "dual_pipe_v"),
        *(("index", name) for name in ("one_f_one_b", "interleaved")),
    )
}

# (schedule, options of the training, what the refusal has to name), by the name in test ids.
REFUSED: dict[str, tuple[str, dict[str, object], tuple[str, ...]]] = {
    **{f"{name}-none": (name, {"m": 0, "batch_rows": 8}, ("0",)) for name in SCHEDULES},
    **{f"{name}-uneven": (name, {"m": 4, "batch_rows": 10}, ("4", "10")) for name in _ONE_OF_EACH},
    **{f"{name}-stages": (name, {"m": 4, "num_stages": 3}, ("3", "2", "stages")) for name in _ONE_OF_EACH},
    "interleaved-rounds": ("interleaved", {"m": 5}, ("5", "2")),
    "fill_drain-short": ("fill_drain", {"m": 4, "batch_rows": 3}, ("3", "4")),
    "fill_drain-rows_of_another_batch": ("fill_drain", {"rows": (3, 2, 2), "batch_rows": 8}, ("7", "8")),
    "fill_drain-rows_of_too_few": ("fill_drain", {"rows": (4, 4), "m": 4, "batch_rows": 8}, ("2", "4")),
    "fill_drain-rows_with_none": ("fill_drain", {"rows": (4, 0, 4)}, ("4, 0, 4",)),
}


@dataclass(frozen=True)
class Training:
    """What to train, and how.

    steps         updates; each on data of its own
    windows       steps without an update in between, for each update
    replicas      pipelines side by side, each with data of its own: rank = replica · p + place in the pipeline
    tensor_ranks  pipelines side by side with the same data, which share what crosses a boundary
    batch_rows    rows of one step in one replica; None: as many as the micro-batches need
    num_stages    of the model, in the schedule's places; None: as many as the plan needs
    pause_s       extra time in every forward and backward of a stage, so that a schedule can be seen in time
    """

    plan: PipelinePlan
    kind: str = "chain"
    steps: int = 2
    windows: int = 1
    replicas: int = 1
    tensor_ranks: int = 1
    batch_rows: int | None = None
    num_stages: int | None = None
    pause_s: float = 0.0

    @property
    def side_by_side(self) -> int:
        """Pipelines at once."""
        return self.replicas * self.tensor_ranks

    @property
    def rows(self) -> int:
        """Rows of one step."""
        return sum(self.cut) if self.batch_rows is None else self.batch_rows

    @property
    def cut(self) -> tuple[int, ...]:
        """Rows of each micro-batch of a step."""
        return self.plan.rows or (ROWS,) * self.plan.num_micro_batches


# DualPipeV needs two micro-batches for each rank, a zero-bubble V one less to have no bubble; 1F1B on four ranks shows
# its limit only with more than four.
EIGHT = {("dual_pipe_v", 3), ("zero_bubble_v", 3), ("one_f_one_b", 4)}


def training(
    schedule: str, world: int, m: int | None = None, *, rows: tuple[int, ...] = (), **options: object
) -> Training:
    """A training by the name of its schedule in test ids.

    m      None: as many as `rows` has, or four micro-batches, or eight: powers of two, so that a division by their
           number rounds nothing
    rows   of each micro-batch, where they are not equal
    """
    name, stages_per_rank = SCHEDULES[schedule]
    if m is None:
        m = len(rows) or (8 if (schedule, world) in EIGHT else 4)
    return Training(PipelinePlan(name, m, stages_per_rank, rows), **options)  # type: ignore[arg-type]


def num_ranks(schedule: str) -> int:
    """Ranks that make three stages or four, so that one is neither first nor last."""
    return 3 if SCHEDULES[schedule][1] == 1 else 2
