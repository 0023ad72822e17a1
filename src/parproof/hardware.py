"""What this machine has, found without importing torch where possible."""

from __future__ import annotations

import functools
import glob
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass

_GPUS_NEEDED = {"cuda1": 1, "cuda2": 2}


@dataclass(frozen=True)
class UnmetNeed:
    """Why a lane cannot run: what it requires, what was found, how to get it."""

    lane: str
    required: str
    found: str
    how: str

    def __str__(self) -> str:
        return f"lane {self.lane} requires {self.required}; found {self.found}; {self.how}"


def unmet_need(lane: str, world_size: int = 0) -> UnmetNeed | None:
    """The reason why `world_size` ranks cannot run in this lane here, or None."""
    if lane == "cpu":
        return None
    if lane == "cross_node":
        return UnmetNeed(
            lane,
            "ranks on two or more hosts",
            "one host: the local launcher starts ranks on this machine only",
            "run it through a launcher that starts rank servers on several hosts",
        )
    needed = max(_GPUS_NEEDED[lane], world_size if lane == "cuda2" else 0)
    found = num_cuda_gpus()
    if found >= needed:
        return None
    return UnmetNeed(
        lane,
        f"{needed} CUDA GPU{'s' if needed > 1 else ''} visible to a CUDA build of torch",
        f"{found}",
        f"run pytest -m {lane} on a machine with {needed} or more NVIDIA GPUs"
        " and a CUDA build of torch (check CUDA_VISIBLE_DEVICES)",
    )


def num_cuda_gpus() -> int:
    """GPUs torch can use."""
    return len(cuda_gpus())


@functools.cache
def cuda_gpus() -> tuple[str, ...]:
    """Their names, by device number. Asked in a process of its own: CUDA must not be touched before ranks are forked."""
    if not (glob.glob("/dev/nvidia[0-9]*") or glob.glob("/dev/dxg")):
        return ()
    code = (
        "import torch; n = torch.cuda.device_count() if torch.cuda.is_available() else 0;"
        " print(*map(torch.cuda.get_device_name, range(n)), sep='\\n')"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()  # a driver that does not answer runs no ranks either
    return tuple(done.stdout.split("\n")[:-1]) if done.returncode == 0 and done.stdout.strip() else ()


def names_of(devices: Iterable[str]) -> str | None:
    """What accelerators these devices of this machine are, each kind once; None for CPU, or without a name for one."""
    known, found = cuda_gpus(), set()
    for device in devices:
        kind, _, number = device.partition(":")
        if kind == "cuda":
            if not number.isdecimal() or int(number) >= len(known):
                return None
            found.add(known[int(number)])
    return " | ".join(sorted(found)) or None
