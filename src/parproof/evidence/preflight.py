"""Can this machine run a profile? Requirement, found, and how to get it. A preflight is no communication evidence."""

from __future__ import annotations

import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

from parproof import hardware, registry

MIN_FREE_BYTES = 1 << 30
MIN_OPEN_FILES = 256
MIN_PROCESSES = 128
IMPORT_S = 120


@dataclass(frozen=True)
class Check:
    """One requirement."""

    name: str
    ok: bool
    requirement: str
    found: str
    how: str


def run(profile_id: str) -> list[Check]:
    """All checks of a profile. Errors: UsageError for an unknown one."""
    profile = registry.load().profile(profile_id)
    checks = [_python(), _disk(), _open_files(), _processes(), _loopback()]
    checks += [_package(*needed) for needed in _PACKAGES]
    checks.append(_torch_build("nccl" if any(lane.startswith("cuda") for lane in profile.lanes) else "gloo"))
    for lane in profile.lanes:
        unmet = hardware.unmet_need(lane)
        if unmet is not None:
            checks.append(Check(f"lane {lane}", False, unmet.required, unmet.found, unmet.how))
        else:
            checks.append(Check(f"lane {lane}", True, "what the lane needs", "it", ""))
    if not profile.requirements:
        checks.append(
            Check(
                "requirements",
                False,
                "a pinned environment",
                "none is registered yet",
                "the profile is planned",
            )
        )
    return checks


_PACKAGES = (
    ("torch", (2, 11)),
    ("pytest", (9,)),
    ("pytest-timeout", (2, 4)),
    ("pytest-xdist", (3, 8)),
    ("pytest-benchmark", (5, 1)),
    ("jsonschema", (4, 23)),
)


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    return Check("python", sys.version_info >= (3, 11), "3.11 or newer", found, "install a newer Python")


def _package(name: str, least: tuple[int, ...]) -> Check:
    wanted = ".".join(map(str, least)) + " or newer"
    how = f"python -m pip install -r requirements/cpu.txt (installs {name})"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(name, False, wanted, "not installed", how)
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[: len(least)] if part.isdigit())
    return Check(name, numbers >= least, wanted, version, how)


def _disk() -> Check:
    free = shutil.disk_usage(tempfile.gettempdir()).free
    return Check(
        "temporary disk",
        free >= MIN_FREE_BYTES,
        "1 GiB free",
        f"{free >> 20} MiB",
        "free some space, or set TMPDIR",
    )


def _open_files() -> Check:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Check(
        "open files", limit >= MIN_OPEN_FILES, f"a limit of {MIN_OPEN_FILES}", str(limit), "ulimit -n 1024"
    )


def _processes() -> Check:
    """Eight ranks, with a few threads each."""
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    enough = limit == resource.RLIM_INFINITY or limit >= MIN_PROCESSES
    found = "no limit" if limit == resource.RLIM_INFINITY else str(limit)
    return Check("processes", enough, f"a limit of {MIN_PROCESSES}", found, f"ulimit -u {MIN_PROCESSES}")


def _torch_build(backend: str) -> Check:
    """Asked in a process of its own: torch stays out of this one, and a broken build breaks only that one."""
    code = (
        "import torch, torch.distributed as d;"
        "a = [b for b in ('gloo', 'nccl') if d.is_available() and getattr(d, f'is_{b}_available')()];"
        "print(torch.__version__, *a)"
    )
    wanted = f"a build that imports, with backend {backend}"
    how = "install torch from requirements/cpu.txt or requirements/cuda.txt"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=IMPORT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Check("torch build", False, wanted, f"no answer within {IMPORT_S} s", how)
    found = (done.stdout if done.returncode == 0 else done.stderr).strip().split("\n")[-1]
    ready = done.returncode == 0 and backend in found.split()
    return Check("torch build", ready, wanted, found or f"exit status {done.returncode}", how)


def _loopback() -> Check:
    """gloo talks over the loopback interface."""
    return Check("loopback", *_tried(_bind_loopback), "check that 127.0.0.1 is up and not filtered")


def _bind_loopback() -> None:
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.settimeout(2)
        client.connect(server.getsockname())


def _tried(action: Callable[[], None]) -> tuple[bool, str, str]:
    try:
        action()
    except OSError as error:
        return False, "a TCP connection to 127.0.0.1", str(error)
    return True, "a TCP connection to 127.0.0.1", "one"
