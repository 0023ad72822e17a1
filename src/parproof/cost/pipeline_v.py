"""V-shaped schedules: two stages a rank, placed there and back, so that the turn needs no transfer.

Rank s of p has stages s (near the input) and 2p − 1 − s (near the loss). Both schedules are phases of what can be
ready by then; derived in docs/costs.md#v-shaped-schedules.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from parproof.cost.pipeline import BACKWARD, FORWARD, INPUT, WEIGHT, Event, check_sizes
from parproof.errors import InvalidPlan

Unit = tuple[Event, ...]
# Letters of a phase: forward, input, weight and whole backward of the near stage; capitals are those of the far one.
# A dash is the oldest weight gradient that was put off, of either stage. Two letters run as one piece of work.
_KINDS = {"f": FORWARD, "i": INPUT, "w": WEIGHT, "b": BACKWARD}


def units(schedule: str, num_ranks: int, num_micro: int) -> list[list[Unit]]:
    """Pieces of work of every rank, in order: one event, or a forward and a backward that overlap.

    Errors   InvalidPlan for an unknown schedule, counts < 1, and dual_pipe_v with fewer than 2p micro-batches
    """
    check_sizes(num_ranks, num_micro)
    if schedule == "dual_pipe_v" and num_micro < 2 * num_ranks:
        raise InvalidPlan(
            f"{num_micro} micro-batches over {num_ranks} ranks (dual_pipe_v)",
            expected=f"at least {2 * num_ranks}, two for each rank",
            where="pipeline schedule",
        )
    if schedule not in _PHASES:
        raise InvalidPlan(f"{schedule!r} has no V", expected=f"one of {', '.join(_PHASES)}")
    made = [
        _events(_PHASES[schedule](num_ranks, num_micro, s), s, 2 * num_ranks - 1 - s)
        for s in range(num_ranks)
    ]
    return [[unit for unit in order if unit[0].micro < num_micro] for order in made]


def _zero_bubble_v(p: int, m: int, s: int) -> list[str]:
    """Forwards until the first micro-batch is back at the turn, then at most one more before each backward.

    With fewer than 2p − 1 micro-batches the last phases begin before the first have ended: what is missing is left
    out of the order of 2p − 1.
    """
    n, behind = max(m, 2 * p - 1), p - s
    start = ["f"] * (2 * behind - 1) + ["F", "f"] * s + ["F", "I", "W"] * behind
    steady = list("fiwFIW") * (n - 2 * p + 1 + s) + list("iwFIW") * (behind - 1)
    return start + steady + ["i", "I"] * s + ["i", "w"] * behind + ["W"] * s + ["w"] * s


def _dual_pipe_v(p: int, m: int, s: int) -> list[str]:
    """As soon as it can, every forward overlaps with a backward of the other stage; the last s + 1 backwards are split."""
    behind = p - 1 - s
    start = ["f"] * (2 * behind) + ["f", "F"] * (s + 1) + ["I", "-", "F"] * behind
    steady = ["fB", "Fb"] * (m - 2 * p + s + 1)
    if not behind:
        steady[:1] = ["f", "B"]  # nothing to wait for on the last rank: apart they fill the turn sooner
    drain = ["B", "Fb"] * behind + ["B", "b"] * (s + 1)
    split = slice(len(drain) - s - 1, None)
    drain[split] = [{"B": "I", "b": "i"}[letter] for letter in drain[split]]
    return start + steady + drain + ["-", "i"] * behind + ["-"] * (s + 1)


_PHASES = {"zero_bubble_v": _zero_bubble_v, "dual_pipe_v": _dual_pipe_v}


def _events(phases: Sequence[str], near: int, far: int) -> list[Unit]:
    """Letters with their micro-batches: each kind of each stage takes them in order."""
    counts: Counter[tuple[str, int]] = Counter()
    put_off: deque[Event] = deque()
    made: list[Unit] = []
    for letters in phases:
        unit = []
        for letter in letters:
            if letter == "-":
                unit.append(put_off.popleft()._replace(kind=WEIGHT))
                continue
            kind, stage = _KINDS[letter.lower()], near if letter.islower() else far
            key = (INPUT if kind == BACKWARD else kind, stage)
            unit.append(Event(kind, stage, counts[key]))
            counts[key] += 1
            if kind == INPUT:
                put_off.append(unit[-1])
        made.append(tuple(unit))
    return made


def dual_pipe_v_idle_s(num_ranks: int, overlapped_s: float, backward_s: float, weight_s: float) -> float:
    """Time in which the rank that waits longest does not work: (p − 1)(F&B + B − 3W), as DeepSeek gives it.

    overlapped_s   F&B, of a forward and a whole backward together; backward_s: B, of a whole backward; weight_s: W,
                   of its second part
    Exact where forward and backward to the inputs take the same time and weights no more: on every rank when
    nothing is gained by overlap. More than it says where forwards or weights take longer, less where they are shorter.
    """
    check_sizes(num_ranks, 1)
    return (num_ranks - 1) * (overlapped_s + backward_s - 3 * weight_s)
