"""What the evidence was made on: machine, packages, source tree. Nothing secret: variables by an allow-list."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from parproof.evidence import canonical

SCHEMA = "parproof-environment/v1"
_PACKAGES = (
    "parproof",
    "torch",
    "numpy",
    "pytest",
    "pytest-xdist",
    "pytest-timeout",
    "pytest-benchmark",
    "jsonschema",
)
_VARIABLES = (
    "CI",
    "CUDA_VISIBLE_DEVICES",
    "GLOO_SOCKET_IFNAME",
    "MASTER_ADDR",
    "NCCL_DEBUG",
    "NCCL_SOCKET_IFNAME",
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "TORCH_DISTRIBUTED_DEBUG",
)


def describe() -> dict[str, Any]:
    """Machine and packages; a package that is not installed is null."""
    return {
        "schema": SCHEMA,
        "machine": {
            "hostname": platform.node(),
            "system": platform.system(),
            "kernel": platform.release(),
            "architecture": platform.machine(),
            "cpu_model": _cpu_model(),
            "num_cpus": os.cpu_count(),
            "memory_bytes": _memory_bytes(),
        },
        "python": {"version": platform.python_version(), "implementation": platform.python_implementation()},
        "packages": {name: _version(name) for name in _PACKAGES},
        "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def source_tree(root: Path) -> dict[str, Any]:
    """Commit and fingerprint of what was tested; without git, a fingerprint of the installed package."""
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return {"commit": None, "dirty": None, "fingerprint": package_fingerprint()}
    status = _status(root)
    diff = _git(root, "diff", "HEAD") or ""
    tree = _git(root, "rev-parse", "HEAD^{tree}")
    return {
        "commit": commit,
        "dirty": bool(status.strip()),
        "fingerprint": canonical.digest([tree, status, diff, package_fingerprint()]),
    }


def _status(root: Path) -> str:
    """What git has to say of the tree, less evidence that lies in it: writing some does not change what was tested."""
    top = Path(_git(root, "rev-parse", "--show-toplevel") or root)
    lines = (_git(root, "status", "--porcelain") or "").splitlines()
    return "\n".join(
        line for line in lines if not (line.startswith("?? ") and _is_evidence(top / line[3:].strip('"')))
    )


def _is_evidence(path: Path) -> bool:
    """A finished evidence directory, or one that is being written (see store.py)."""
    being_written = re.fullmatch(r"\..+\.partial-\d+", path.name) is not None
    return being_written or all((path / name).is_file() for name in ("manifest.json", "records.jsonl"))


def package_fingerprint() -> str:
    """sha256 over the package's own source files, by name."""
    folder = Path(__file__).resolve().parents[1]
    files = sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".toml") and p.is_file())
    return canonical.digest([[str(p.relative_to(folder)), canonical.file_digest(p)] for p in files])


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _memory_bytes() -> int | None:
    if not hasattr(os, "sysconf") or sys.platform == "win32":
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
