"""The commands under the names of the source documents."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.selfcheck
TOOLS = Path(__file__).parents[2] / "tools"


def run(tool, *arguments):
    """A tool in a process of its own."""
    command = [sys.executable, str(TOOLS / tool), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_plan_of_a_profile_is_shown_and_nothing_is_done(tmp_path):
    """Four commands: environment, requirements, pip check, preflight."""
    target = tmp_path / "environment"
    done = run("install_environment_profile.py", "--profile", "PAR-CPU", "--env-name", target, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert [line.split("-m ")[1].split()[0] for line in done.stdout.splitlines()] == [
        "venv",
        "pip",
        "pip",
        "parproof",
    ]
    assert "requirements/cpu.txt" in done.stdout
    assert not target.exists()


@pytest.mark.parametrize(
    ("profile", "text"), [("PAR-NONE", "known: PAR-CPU"), ("PAR-SERVING-RAY", "planned")]
)
def test_a_profile_that_cannot_be_installed_is_named(profile, text):
    """Unknown, or without pinned requirements."""
    done = run("install_environment_profile.py", "--profile", profile)
    assert done.returncode != 0
    assert text in done.stderr


def test_an_environment_of_something_else_is_not_touched(tmp_path):
    """Nor one of the same profile, unless asked."""
    done = run("install_environment_profile.py", "--profile", "PAR-CPU", "--env-name", tmp_path)
    assert "made for something else" in done.stderr
    (tmp_path / "parproof-profile.txt").write_text("PAR-CPU\n")
    done = run("install_environment_profile.py", "--profile", "PAR-CPU", "--env-name", tmp_path)
    assert "--reuse" in done.stderr


def test_preflight_writes_its_answer_once(tmp_path):
    """JSON beside the printed lines; never over an old one."""
    target = tmp_path / "preflight.json"
    assert run("environment_preflight.py", "--profile", "PAR-CPU", "--output", target).returncode == 0
    assert all(check["ok"] for check in json.loads(target.read_text()))
    assert run("environment_preflight.py", "--output", target).returncode == 2
    assert run("environment_preflight.py", "--output", target / "below").returncode == 2
    unknown = run("environment_preflight.py", "--profile", "PAR-MOON", "--output", tmp_path / "none.json")
    assert unknown.returncode == 2
    assert not (tmp_path / "none.json").exists()
