"""Command-line options and markers; every long option starts with --parproof-, three have a short form."""

from __future__ import annotations

from typing import Any

import pytest

LANES = ("cpu", "cuda1", "cuda2", "cross_node")
DEFAULT_SUBJECTS = ("parproof.subjects.reference:SUBJECT", "parproof.subjects.torch_native:SUBJECT")

_MARKERS = (
    "experiment(id): the registered experiment a test belongs to, e.g. PAR-ZERO-STATE",
    "claim(id, …): the claims a test judges, e.g. C1",
    "lanes(name, …, control=n): lanes the test runs in, collected once for each; with control, the cpu lane takes "
    "one case in n of the reference's, and the others are selfchecks",
    "cpu: gloo ranks on this host",
    "cuda1: one CUDA GPU, smoke only",
    "cuda2: NCCL on two or more CUDA GPUs of this host",
    "cross_node: ranks on two or more hosts",
    "selfcheck: the suite's own tests",
)


# (names, how argparse takes it), in the order of --help.
_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("--subject", "--parproof-subject"),
        {
            "action": "append",
            "default": [],
            "metavar": "MODULE:ATTR",
            "help": "implementation under test; may be repeated (default: the reference and what torch ships)",
        },
    ),
    (
        ("--evidence", "--parproof-evidence"),
        {
            "default": None,
            "metavar": "DIR",
            "help": "write records.jsonl, manifest.json and environment.json into this new or empty directory",
        },
    ),
    (
        ("--require", "--parproof-require"),
        {
            "action": "append",
            "default": [],
            "choices": LANES,
            "help": "turn every unmet need of this lane into an error instead of a skip; may be repeated",
        },
    ),
    (
        ("--parproof-deadline",),
        {
            "type": float,
            "default": None,
            "metavar": "SECONDS",
            "help": "deadline of one run of a rank program (default: what --timeout leaves, less a margin; else 60)",
        },
    ),
    (
        ("--parproof-mutants",),
        {
            "action": "store_true",
            "default": False,
            "help": "run the claims against the planted mutants instead of subjects: a killed mutant passes",
        },
    ),
    (
        ("--parproof-kill-matrix",),
        {
            "default": None,
            "metavar": "FILE",
            "help": "with --parproof-mutants: write mutant, claim, verdict and witness as JSON",
        },
    ),
    (
        ("--parproof-run-label",),
        {
            "default": "",
            "metavar": "TEXT",
            "help": "free text that names this run in its evidence, e.g. the node or the change under test",
        },
    ),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("parproof", "parallel mechanisms: conformance and evidence")
    for names, given in _OPTIONS:
        group.addoption(*names, **given)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for line in _MARKERS:
        config.addinivalue_line("markers", line)
