"""Creates the environment of a profile: a virtual environment with the pinned requirements, checked.

    python tools/install_environment_profile.py --profile PAR-CPU --env-name .venv [--dry-run] [--reuse]

Runs with any Python ≥ 3.11 and needs nothing installed. An existing environment is used again only with --reuse, and
only if it was made for the same profile: overlaying one profile on another is how conflicts begin.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARK = "parproof-profile.txt"


def requirements_of(profile: str) -> str:
    """The requirements file that the registry names. Errors: SystemExit with the known profiles."""
    raw = tomllib.loads((ROOT / "src" / "parproof" / "registry.toml").read_text("utf-8"))
    known = {entry["id"]: entry["requirements"] for entry in raw["profile"]}
    if profile not in known:
        raise SystemExit(f"unknown profile {profile}; known: {', '.join(known)}")
    if not known[profile]:
        raise SystemExit(f"profile {profile} is planned: no environment is pinned for it yet")
    return known[profile]


def plan(profile: str, environment: Path) -> list[list[str]]:
    """The commands, in order."""
    python = str(environment / "bin" / "python")
    return [
        [sys.executable, "-m", "venv", str(environment)],
        [python, "-m", "pip", "install", "-r", requirements_of(profile)],
        [python, "-m", "pip", "check"],
        [python, "-m", "parproof", "preflight", "--profile", profile],
    ]


def may_use(environment: Path, profile: str, *, reuse: bool) -> bool:
    """Is there an environment of this profile already? Errors: SystemExit when it must not be touched."""
    if not environment.exists():
        return False
    mark = environment / MARK
    made_for = mark.read_text().strip() if mark.exists() else "something else"
    if made_for != profile:
        raise SystemExit(f"{environment} was made for {made_for}; next: choose another --env-name")
    if not reuse:
        raise SystemExit(f"{environment} exists; next: say --reuse to use it again")
    return True


def main() -> int:
    """0 ready; otherwise the status of the command that failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", required=True)
    parser.add_argument("--env-name", type=Path, default=Path(".venv"))
    parser.add_argument("--dry-run", action="store_true", help="show the plan and do nothing")
    parser.add_argument("--reuse", action="store_true")
    options = parser.parse_args()
    commands = plan(options.profile, options.env_name)
    if options.dry_run:
        print("\n".join(" ".join(command) for command in commands))  # noqa: T201
        return 0
    exists = may_use(options.env_name, options.profile, reuse=options.reuse)
    for command in commands[1:] if exists else commands:
        print("+", " ".join(command), flush=True)  # noqa: T201
        done = subprocess.run(command, cwd=ROOT, check=False)
        if done.returncode:
            return done.returncode
        if command[1:3] == ["-m", "venv"]:
            (options.env_name / MARK).write_text(options.profile + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
