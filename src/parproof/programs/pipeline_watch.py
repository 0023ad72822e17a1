"""What a pipeline does on a rank, seen from outside: by its own word, in the stages' modules, and in memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from parproof.ranks.context import RankContext


@dataclass(frozen=True)
class Entry:
    """One line of a rank's log.

    kind    F, B, I, W as a subject says; «module» and «gradient»: what a stage's module itself saw
    edge    start or end
    micro   −1 for what a module saw: it does not know
    rows    calls in the rank's ledger so far
    at_s    the host's monotonic clock
    """

    kind: str
    edge: str
    stage: int
    micro: int
    rows: int
    at_s: float


@dataclass
class Log:
    """One step of one rank.

    peak_live        stage → micro-batches whose activations were alive at once, as the graph's saved tensors show
    peak_live_rows   stage → rows of them, at most: where micro-batches are not equal, another peak
    peak_live_all    micro-batches, all stages of the rank together
    left_over        activations still alive after the step
    """

    entries: list[Entry] = field(default_factory=list)
    peak_live: dict[int, int] = field(default_factory=dict)
    peak_live_rows: dict[int, int] = field(default_factory=dict)
    peak_live_all: int = 0
    left_over: int = 0


class _Saved:
    """A tensor that autograd keeps; says so when it is dropped."""

    def __init__(self, tensor: Tensor, watch: Watch, call: tuple[int, int]) -> None:
        self.tensor, self.watch, self.call = tensor.detach(), watch, call
        watch.hold(call)

    def __del__(self) -> None:
        self.watch.drop(self.call)


class Watch:
    """Observer for a subject, and hooks on the stages' modules that no subject has to know of.

    Live activations are counted by the tensors that autograd saves in a stage's forward (parameters apart): the
    count of a forward falls to zero when its graph is released, whatever a subject says.
    """

    def __init__(self, ctx: RankContext) -> None:
        self._rows = ctx.recorder.rows if ctx.recorder is not None else []
        self._log = Log()
        self._logs: list[Log] = []
        self._alive: Counter[tuple[int, int]] = Counter()
        self._calls: Counter[int] = Counter()
        self._rows_of: dict[tuple[int, int], int] = {}
        self._open: dict[int, Any] = {}

    def observe(self, kind: str, edge: str, stage: int, micro: int) -> None:
        """The observer that a subject calls."""
        self._log.entries.append(Entry(kind, edge, stage, micro, len(self._rows), time.monotonic()))

    def restart(self) -> None:
        """A new step begins."""
        self._close()
        self._log = Log()
        self._logs.append(self._log)
        self._alive.clear()

    def finish(self) -> list[Log]:
        """The log of each step."""
        self._close()
        return self._logs

    def _close(self) -> None:
        self._log.left_over = sum(count > 0 for count in self._alive.values())

    # -- the modules' side ---------------------------------------------------------------------------------

    def modules(self, stages: Mapping[int, nn.Module], pause_s: float) -> None:
        """Hook every stage; `pause_s` is slept in each of its forwards and backwards."""
        for stage, module in stages.items():
            own = {p.untyped_storage().data_ptr() for p in module.parameters()}
            module.register_forward_pre_hook(self._before(stage, own))
            module.register_forward_hook(self._after(stage, pause_s), always_call=True)

    def _before(self, stage: int, own: set[int]) -> Any:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            call = (stage, self._calls[stage])
            self._rows_of[call] = inputs[0].shape[0]
            self._calls[stage] += 1
            self.observe("module", "start", stage, -1)

            def pack(x: Tensor) -> Tensor | _Saved:
                return x.detach() if x.untyped_storage().data_ptr() in own else _Saved(x, self, call)

            context = torch.autograd.graph.saved_tensors_hooks(pack, _unpack)
            self._open[stage] = context
            context.__enter__()

        return hook

    def _after(self, stage: int, pause_s: float) -> Any:
        def hook(module: nn.Module, inputs: object, output: Tensor | tuple[Tensor, ...]) -> None:
            self._open.pop(stage).__exit__(None, None, None)
            time.sleep(pause_s)
            self.observe("module", "end", stage, -1)
            first = output if isinstance(output, Tensor) else output[0]
            if first.requires_grad:
                first.register_hook(self._gradient(stage, pause_s))

        return hook

    def _gradient(self, stage: int, pause_s: float) -> Any:
        def hook(grad: Tensor) -> None:
            self.observe("gradient", "start", stage, -1)
            time.sleep(pause_s)

        return hook

    def hold(self, call: tuple[int, int]) -> None:
        """A tensor of a forward is kept."""
        self._alive[call] += 1
        if self._alive[call] == 1:
            living = [c for c, count in self._alive.items() if count > 0]
            of_stage = [self._rows_of[c] for c in living if c[0] == call[0]]
            for peaks, now in (
                (self._log.peak_live, len(of_stage)),
                (self._log.peak_live_rows, sum(of_stage)),
            ):
                peaks[call[0]] = max(peaks.get(call[0], 0), now)
            self._log.peak_live_all = max(self._log.peak_live_all, len(living))

    def drop(self, call: tuple[int, int]) -> None:
        """A tensor of a forward is released."""
        if call in self._alive:
            self._alive[call] -= 1


def _unpack(saved: Tensor | _Saved) -> Tensor:
    return saved if isinstance(saved, Tensor) else saved.tensor
