"""docs/subjects.md does what it says: its code is run by its commands and gives its numbers."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "subjects.md").read_text()
CODE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^\$ PYTHONPATH=\S+ pytest (.*)\n(.*(?:passed|failed).*)$", PAGE, re.MULTILINE)


@pytest.fixture
def folder(tmp_path):
    """Where a reader would have put the page's code."""
    (tmp_path / "myring.py").write_text("\n".join(CODE[:2]))
    return tmp_path


def run(folder, arguments):
    """The page's command, from the checkout; its last line."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", *arguments.split(), "-q", "-p", "no:cacheprovider"]
    environment["PYTHONPATH"] = str(folder)
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("arguments", "counts"), COMMANDS, ids=["one subject", "with a lie"])
def test_the_commands_of_the_page_give_the_counts_of_the_page(folder, arguments, counts):
    """Passed, failed and skipped; how long it takes is the machine's business."""
    done = run(folder, arguments)
    last = done.stdout.strip().splitlines()[-1]
    for count in counts.split(", "):
        assert count in last, f"{last}, the page says {counts}\n{done.stdout[-3000:]}{done.stderr[-500:]}"
    assert ("failed" in last) == ("failed" in counts), last
